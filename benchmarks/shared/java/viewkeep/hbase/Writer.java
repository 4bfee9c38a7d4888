package viewkeep.hbase;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * An ordinary client of HBase, which writes what a file has: one command a line, and one answer
 * that begins with "= ", the seconds that it took.
 *
 * <p>{@code TABLE FILE COLUMNS FROM COUNT THREADS BATCH RATE}: COLUMNS are qualifiers of family f,
 * with commas between; RATE is in operations a second, 0 for as fast as it goes.
 *
 * <p>A file has operations of one width: a byte that is 1 if the row is deleted, its key, and its
 * columns, each in 8 bytes, big-endian. The place in the file gives the timestamp, so what is left
 * at the end does not depend on which thread comes first.
 */
public final class Writer {
  private static final byte[] FAMILY = Bytes.toBytes("f");
  private static final long FIRST = 1_700_000_000_000L; // the timestamp of the first operation

  private Writer() {}

  public static void main(String[] none) throws Exception {
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
      System.out.println("= ready");
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        String answer;
        try {
          answer = Double.toString(write(connection, line.split(" ")));
        } catch (Exception error) {
          answer = "no " + error.toString().replace('\n', ' ');
        }
        System.out.println("= " + answer);
      }
    }
  }

  private static double write(Connection connection, String[] words) throws Exception {
    TableName name = TableName.valueOf(words[0]);
    ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(Paths.get(words[1])));
    byte[][] columns = Bytes.toByteArrays(words[2].split(","));
    int from = Integer.parseInt(words[3]);
    int stop = from + Integer.parseInt(words[4]);
    int threads = Integer.parseInt(words[5]);
    int batch = Integer.parseInt(words[6]);
    double rate = Double.parseDouble(words[7]);
    AtomicInteger next = new AtomicInteger(from);
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    long began = System.nanoTime();
    try (Table table = connection.getTable(name)) {
      List<Future<?>> ended = new ArrayList<>();
      for (int thread = 0; thread < threads; thread++) {
        ended.add(
            pool.submit(
                () -> {
                  for (int at = next.getAndAdd(batch); at < stop; at = next.getAndAdd(batch)) {
                    if (rate > 0) {
                      await(began + (long) ((at - from) / rate * 1e9));
                    }
                    List<Row> rows = rows(data, columns, at, Math.min(at + batch, stop));
                    table.batch(rows, new Object[rows.size()]);
                  }
                  return null;
                }));
      }
      for (Future<?> one : ended) {
        one.get();
      }
    } finally {
      pool.shutdownNow();
    }
    return (System.nanoTime() - began) / 1e9;
  }

  private static void await(long due) throws InterruptedException {
    long left = due - System.nanoTime();
    if (left > 0) {
      TimeUnit.NANOSECONDS.sleep(left);
    }
  }

  private static List<Row> rows(ByteBuffer data, byte[][] columns, int from, int stop) {
    List<Row> rows = new ArrayList<>(stop - from);
    int width = 9 + 8 * columns.length;
    for (int number = from; number < stop; number++) {
      int at = number * width;
      byte[] key = Bytes.toBytes(data.getLong(at + 1));
      if (data.get(at) == 1) {
        rows.add(new Delete(key, FIRST + number));
        continue;
      }
      Put put = new Put(key, FIRST + number);
      for (int column = 0; column < columns.length; column++) {
        long value = data.getLong(at + 9 + 8 * column);
        put.addColumn(FAMILY, columns[column], Bytes.toBytes(value));
      }
      rows.add(put);
    }
    return rows;
  }
}

package viewkeep.hbase;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellBuilderFactory;
import org.apache.hadoop.hbase.CellBuilderType;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.wal.WAL;
import org.apache.hadoop.hbase.wal.WALEdit;
import org.apache.hadoop.hbase.wal.WALKeyImpl;

/**
 * How many appends one log table takes in a second, by as many appenders as there would be region
 * servers: {@code LOG_TABLE TABLE APPENDERS SECONDS}. Each append has one row of the table, which
 * must be listed in the log.
 */
public final class Appenders {
  private Appenders() {}

  public static void main(String[] words) throws Exception {
    TableName log = TableName.valueOf(words[0]);
    int count = Integer.parseInt(words[2]);
    AtomicLong appends = new AtomicLong();
    ExecutorService pool = Executors.newFixedThreadPool(count);
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create())) {
      List<Appender> appenders = new ArrayList<>();
      for (int number = 0; number < count; number++) {
        Appender appender = new Appender(connection.getTable(log), "bench" + number);
        appender.append(entries(words[1])); // it begins its log
        appenders.add(appender);
      }
      long began = System.nanoTime();
      long end = began + (long) (Double.parseDouble(words[3]) * 1e9);
      List<Future<?>> ended = new ArrayList<>();
      for (Appender appender : appenders) {
        ended.add(
            pool.submit(
                () -> {
                  while (System.nanoTime() < end) {
                    appender.append(entries(words[1]));
                    appends.incrementAndGet();
                  }
                  return null;
                }));
      }
      for (Future<?> one : ended) {
        one.get();
      }
      System.out.println("= " + appends.get() / ((System.nanoTime() - began) / 1e9));
    } finally {
      pool.shutdownNow();
    }
  }

  private static List<WAL.Entry> entries(String table) {
    Cell cell =
        CellBuilderFactory.create(CellBuilderType.DEEP_COPY)
            .setRow(Bytes.toBytes("row"))
            .setFamily(Bytes.toBytes("f"))
            .setQualifier(Bytes.toBytes("q"))
            .setTimestamp(1)
            .setType(Cell.Type.Put)
            .setValue(new byte[100])
            .build();
    WALKeyImpl key =
        new WALKeyImpl(
            Bytes.toBytes("region"),
            TableName.valueOf(table),
            1,
            System.currentTimeMillis(),
            new UUID(0, 0));
    WALEdit edit = new WALEdit();
    edit.getCells().add(cell);
    return Collections.singletonList(new WAL.Entry(key, edit));
  }
}

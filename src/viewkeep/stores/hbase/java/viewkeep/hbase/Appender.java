package viewkeep.hbase;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.wal.WAL;

/**
 * Appends the entries of one WAL to a log of its own.
 *
 * <p>Law: rows below a log's head are never written again. The head moves by compare-and-set after
 * the rows are durable. Whatever fails in between, this appender leaves the log for good and begins
 * another, so entries may be in two logs, and rows above a head are read by nobody.
 *
 * <p>A batch's stamp is larger than the stamps of all heads at that time. So of two batches, one of
 * which was complete before the other was begun, that one has the smaller stamp, whatever the clocks
 * say: with a serial peer, a row's changes in several logs are in the order of their stamps.
 */
final class Appender implements Closeable {
  static final byte[] SUMMARY = Bytes.toBytes("s");
  static final byte[] BYTES = Bytes.toBytes("b");
  static final int PREFIXES = 64; // first bytes of rows: logs are spread over the table
  static final int BATCH = 1 << 20; // bytes of a row of the log table
  private static final int PIECE = 4 << 20; // of one of its cells
  private static final int CALL = 8 << 20; // of one call
  private static final int TRIES = 100;

  private final Table table;
  private final String server;
  private long log; // 0: none
  private byte[] head;
  private long position;
  private long size;
  private long written;
  private long began = System.nanoTime() - Long.MAX_VALUE / 2; // of the last append

  Appender(Table table, String server) {
    this.table = table;
    this.server = server;
  }

  /** Wait until so many milliseconds have passed since the last append began. */
  void pause(long milliseconds) throws InterruptedException {
    long left = milliseconds - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
    if (left > 0) {
      Thread.sleep(left);
    }
    began = System.nanoTime();
  }

  /** Append what is of tables that are logged. If it throws, the same entries must come again. */
  void append(List<WAL.Entry> entries) throws IOException {
    Heads heads = heads();
    List<WAL.Entry> ours = new ArrayList<>();
    for (WAL.Entry entry : entries) {
      if (heads.logs(entry.getKey().getTableName().getNameAsString()) && Batch.hasCells(entry)) {
        ours.add(entry);
      }
    }
    if (ours.isEmpty()) {
      return;
    }
    if (log == 0) {
      begin(heads);
    }
    boolean done = false;
    try {
      write(Batch.of(ours, BATCH), heads.lastStamp + 1);
      done = true;
    } finally {
      if (!done) {
        log = 0;
      }
    }
  }

  @Override
  public void close() throws IOException {
    table.close();
  }

  private Heads heads() throws IOException {
    return new Heads(table.get(new Get(Heads.ROW).addFamily(Heads.FAMILY)));
  }

  private void begin(Heads heads) throws IOException {
    for (int tries = 0; tries < TRIES; tries++) {
      long number = heads.begun + 1;
      long stamp = heads.lastStamp; // timestamps of cells: those of a head are its stamps
      byte[] first = Heads.head(0, stamp, heads.lastWritten, 0, server);
      Put put =
          new Put(Heads.ROW)
              .addColumn(Heads.FAMILY, Heads.BEGUN, number, Bytes.toBytes(number))
              .addColumn(Heads.FAMILY, Heads.column(number), stamp, first);
      if (swap(Heads.BEGUN, heads.begunBytes, put)) {
        log = number;
        head = first;
        position = 0;
        size = 0;
        written = heads.lastWritten;
        return;
      }
      heads = heads();
    }
    throw new IOException("other servers began logs each time that this one tried");
  }

  private void write(List<Batch> batches, long stamp) throws IOException {
    long end = position;
    long bytes = size;
    long newest = written;
    long held = 0;
    List<Put> rows = new ArrayList<>();
    for (Batch batch : batches) {
      end += batch.operations;
      bytes += batch.bytes.length;
      held += batch.bytes.length;
      newest = Math.max(newest, batch.lastWritten);
      rows.add(row(batch, end, stamp));
      if (held >= CALL) {
        table.put(rows);
        rows = new ArrayList<>();
        held = 0;
      }
    }
    if (!rows.isEmpty()) {
      table.put(rows);
    }
    byte[] next = Heads.head(end, stamp, newest, bytes, server);
    Put put = new Put(Heads.ROW, stamp).addColumn(Heads.FAMILY, Heads.column(log), next);
    if (!swap(Heads.column(log), head, put)) {
      throw new IOException("log " + log + " was ended; the next one begins");
    }
    head = next;
    position = end;
    size = bytes;
    written = newest;
  }

  private Put row(Batch batch, long end, long stamp) {
    Put put = new Put(key(log, end), stamp);
    byte[] summary =
        ByteBuffer.allocate(40)
            .putLong(stamp)
            .putLong(batch.firstWritten)
            .putLong(batch.lastWritten)
            .putLong(batch.operations)
            .putLong(batch.bytes.length)
            .array();
    put.addColumn(SUMMARY, SUMMARY, summary);
    for (int at = 0, piece = 0; at < batch.bytes.length; at += PIECE, piece++) {
      int stop = Math.min(at + PIECE, batch.bytes.length);
      byte[] part = java.util.Arrays.copyOfRange(batch.bytes, at, stop);
      put.addColumn(BYTES, new byte[] {(byte) piece}, part);
    }
    return put;
  }

  /** The row of the batch of a log that ends at a position. */
  static byte[] key(long log, long end) {
    return ByteBuffer.allocate(13)
        .put((byte) (1 + log % PREFIXES))
        .putInt((int) log)
        .putLong(end)
        .array();
  }

  private boolean swap(byte[] column, byte[] expected, Put put) throws IOException {
    CheckAndMutate.Builder check = CheckAndMutate.newBuilder(Heads.ROW);
    CheckAndMutate request =
        (expected == null
                ? check.ifNotExists(Heads.FAMILY, column)
                : check.ifEquals(Heads.FAMILY, column, expected))
            .build(put);
    return table.checkAndMutate(request).isSuccess();
  }
}

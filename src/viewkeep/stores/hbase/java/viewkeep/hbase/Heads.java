package viewkeep.hbase;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Set;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * The row of the log table that says how far each log is, and which tables are logged.
 *
 * <pre>
 * row 00 "heads", family h
 *   begun        i64: the number of the last log that has begun
 *   log:N        the head of log N: position, stamp, written, size (i64 each), the server's name
 *   kept:N       i64: the position from which on log N is kept (readers write it)
 *   ended        operations, written (i64 each) of logs that are gone (readers write it)
 *   table:NAME   a table that is logged (readers write it)
 * </pre>
 */
final class Heads {
  static final byte[] ROW = Bytes.toBytes("\0heads");
  static final byte[] FAMILY = Bytes.toBytes("h");
  static final byte[] BEGUN = Bytes.toBytes("begun");
  private static final String LOG = "log:";
  private static final String TABLE = "table:";

  final byte[] begunBytes; // null before the first log
  final long begun;
  final long lastStamp;
  final long lastWritten;
  private final Set<String> tables = new HashSet<>();

  Heads(Result row) {
    NavigableMap<byte[], byte[]> values = row.getFamilyMap(FAMILY);
    byte[] found = null;
    long stamp = 0;
    long written = 0;
    if (values != null) {
      for (Map.Entry<byte[], byte[]> column : values.entrySet()) {
        String name = Bytes.toString(column.getKey());
        if (name.startsWith(LOG)) {
          ByteBuffer head = ByteBuffer.wrap(column.getValue());
          stamp = Math.max(stamp, head.getLong(8));
          written = Math.max(written, head.getLong(16));
        } else if (name.startsWith(TABLE)) {
          tables.add(name.substring(TABLE.length()));
        } else if (name.equals("begun")) {
          found = column.getValue();
        }
      }
    }
    begunBytes = found;
    begun = found == null ? 0 : Bytes.toLong(found);
    lastStamp = stamp;
    lastWritten = written;
  }

  boolean logs(String table) {
    return tables.contains(table);
  }

  static byte[] column(long log) {
    return Bytes.toBytes(LOG + log);
  }

  static byte[] head(long position, long stamp, long written, long size, String server) {
    byte[] name = server.getBytes(StandardCharsets.UTF_8);
    return ByteBuffer.allocate(32 + name.length)
        .putLong(position)
        .putLong(stamp)
        .putLong(written)
        .putLong(size)
        .put(name)
        .array();
  }
}

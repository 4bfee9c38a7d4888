package viewkeep.hbase;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.wal.WAL;
import org.apache.hadoop.hbase.wal.WALEdit;
import org.apache.hadoop.hbase.wal.WALKeyImpl;

/**
 * WAL entries as bytes: one row of the log table.
 *
 * <p>Law: the batches of a list of entries hold each of its cells once, in order, and the cells that
 * an entry has of one row next to each other stay in one batch.
 *
 * <pre>
 * batch   version u8 (1), regions u16, region*, entry* to the end; numbers are big-endian
 * region  table u16+bytes, encoded region name u16+bytes
 * entry   region u16, sequence i64, written i64 (milliseconds), cells u32, cell*
 * cell    type u8, timestamp i64, row u16+bytes (length 65535: that of the cell before),
 *         family u8+bytes, qualifier u16+bytes, value u32+bytes
 * </pre>
 */
final class Batch {
  static final int VERSION = 1;
  private static final int SAME_ROW = 0xffff;

  final byte[] bytes;
  final int operations; // changes of rows: cells of one row that lie together in one entry
  final long firstWritten;
  final long lastWritten;

  private Batch(byte[] bytes, int operations, long firstWritten, long lastWritten) {
    this.bytes = bytes;
    this.operations = operations;
    this.firstWritten = firstWritten;
    this.lastWritten = lastWritten;
  }

  /** Entries as batches, each of about so many bytes: a batch ends with the row that passes it. */
  static List<Batch> of(Iterable<WAL.Entry> entries, int size) {
    List<Batch> batches = new ArrayList<>();
    Builder builder = new Builder();
    for (WAL.Entry entry : entries) {
      List<Cell> cells = entry.getEdit().getCells();
      int start = 0;
      while (start < cells.size()) {
        int stop = start;
        int bytes = 0;
        int operations = 0;
        while (stop < cells.size()) { // whole rows, as many as there is room for
          Cell cell = cells.get(stop);
          if (stop == start || !CellUtil.matchingRows(cell, cells.get(stop - 1))) {
            if (stop > start && builder.size() + bytes >= size) {
              break;
            }
            operations++;
          }
          bytes += cell.getSerializedSize();
          stop++;
        }
        builder.add(entry.getKey(), cells.subList(start, stop), operations);
        start = stop;
        if (builder.size() >= size || start < cells.size()) {
          batches.add(builder.build());
          builder = new Builder();
        }
      }
    }
    if (!builder.isEmpty()) {
      batches.add(builder.build());
    }
    return batches;
  }

  /** Whether an entry has cells of users, and not only marks of HBase's own. */
  static boolean hasCells(WAL.Entry entry) {
    for (Cell cell : entry.getEdit().getCells()) {
      if (!CellUtil.matchingFamily(cell, WALEdit.METAFAMILY)) {
        return true;
      }
    }
    return false;
  }

  private static final class Builder {
    private final Map<Region, Integer> regions = new LinkedHashMap<>();
    private final ByteArrayOutputStream body = new ByteArrayOutputStream();
    private final DataOutputStream out = new DataOutputStream(body);
    private int operations;
    private long firstWritten = Long.MAX_VALUE;
    private long lastWritten = Long.MIN_VALUE;

    boolean isEmpty() {
      return regions.isEmpty();
    }

    int size() {
      return body.size();
    }

    void add(WALKeyImpl key, List<Cell> cells, int operations) {
      Region region = new Region(key);
      Integer number = regions.get(region);
      if (number == null) {
        number = regions.size();
        regions.put(region, number);
      }
      this.operations += operations;
      firstWritten = Math.min(firstWritten, key.getWriteTime());
      lastWritten = Math.max(lastWritten, key.getWriteTime());
      try {
        out.writeShort(number);
        out.writeLong(key.getSequenceId());
        out.writeLong(key.getWriteTime());
        out.writeInt(cells.size());
        Cell before = null;
        for (Cell cell : cells) {
          add(cell, before);
          before = cell;
        }
      } catch (IOException error) {
        throw new IllegalStateException(error); // an array of bytes is no file
      }
    }

    private void add(Cell cell, Cell before) throws IOException {
      out.writeByte(cell.getType().getCode());
      out.writeLong(cell.getTimestamp());
      if (before != null && CellUtil.matchingRows(cell, before)) {
        out.writeShort(SAME_ROW);
      } else {
        out.writeShort(cell.getRowLength());
        out.write(cell.getRowArray(), cell.getRowOffset(), cell.getRowLength());
      }
      out.writeByte(cell.getFamilyLength());
      out.write(cell.getFamilyArray(), cell.getFamilyOffset(), cell.getFamilyLength());
      out.writeShort(cell.getQualifierLength());
      out.write(cell.getQualifierArray(), cell.getQualifierOffset(), cell.getQualifierLength());
      out.writeInt(cell.getValueLength());
      out.write(cell.getValueArray(), cell.getValueOffset(), cell.getValueLength());
    }

    Batch build() {
      ByteArrayOutputStream whole = new ByteArrayOutputStream(body.size() + 64 * regions.size());
      DataOutputStream head = new DataOutputStream(whole);
      try {
        head.writeByte(VERSION);
        head.writeShort(regions.size());
        for (Region region : regions.keySet()) {
          head.writeShort(region.table.length);
          head.write(region.table);
          head.writeShort(region.name.length);
          head.write(region.name);
        }
        body.writeTo(whole);
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
      return new Batch(whole.toByteArray(), operations, firstWritten, lastWritten);
    }
  }

  private static final class Region {
    final byte[] table;
    final byte[] name;

    Region(WALKeyImpl key) {
      table = key.getTableName().getName();
      name = key.getEncodedRegionName();
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Region
          && java.util.Arrays.equals(name, ((Region) other).name)
          && java.util.Arrays.equals(table, ((Region) other).table);
    }

    @Override
    public int hashCode() {
      return Objects.hash(java.util.Arrays.hashCode(table), java.util.Arrays.hashCode(name));
    }
  }
}

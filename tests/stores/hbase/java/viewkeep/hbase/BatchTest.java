package viewkeep.hbase;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellBuilderFactory;
import org.apache.hadoop.hbase.CellBuilderType;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.wal.WAL;
import org.apache.hadoop.hbase.wal.WALEdit;
import org.apache.hadoop.hbase.wal.WALKeyImpl;

/** The form of batches: the bytes that Python reads, and the law of {@link Batch}. */
public final class BatchTest {
  private static final Cell.Type[] TYPES = {
    Cell.Type.Put, Cell.Type.Delete, Cell.Type.DeleteColumn, Cell.Type.DeleteFamily
  };

  private BatchTest() {}

  public static void main(String[] words) throws IOException {
    bytesAreThoseThatPythonReads(Paths.get(words[0], "batch.hex"));
    for (int seed = 0; seed < 300; seed++) {
      batchesHoldEachCellOnceAndTearNoRow(new Random(seed));
    }
    entriesOfHBasesOwnAreNone();
  }

  private static void bytesAreThoseThatPythonReads(Path file) throws IOException {
    List<WAL.Entry> entries =
        Arrays.asList(
            entry(
                "votes",
                "0123456789abcdef",
                7,
                1_700_000_000_000L,
                cell("r1", "f", "a", 11, Cell.Type.Put, "one"),
                cell("r1", "f", "b", 11, Cell.Type.Put, ""),
                cell("r2", "f", "", 12, Cell.Type.DeleteFamily, "")),
            entry(
                "news:stories",
                "fedcba9876543210",
                8,
                1_700_000_000_005L,
                cell("r1", "g", "a", 13, Cell.Type.DeleteColumn, ""),
                cell("r1", "g", "a", 14, Cell.Type.Delete, ""),
                cell("r1", "g", "", 15, Cell.Type.DeleteFamilyVersion, "")));
    List<Batch> batches = Batch.of(entries, 1 << 20);
    check(batches.size() == 1, "one batch");
    check(batches.get(0).operations == 3, "three changes");
    check(batches.get(0).firstWritten == 1_700_000_000_000L, "first written");
    check(batches.get(0).lastWritten == 1_700_000_000_005L, "last written");
    StringBuilder found = new StringBuilder();
    for (byte one : batches.get(0).bytes) {
      found.append(String.format("%02x", one));
    }
    String known = new String(Files.readAllBytes(file), StandardCharsets.US_ASCII);
    check(known.replaceAll("\\s", "").equals(found.toString()), "bytes differ: " + found);
  }

  private static void batchesHoldEachCellOnceAndTearNoRow(Random random) throws IOException {
    List<WAL.Entry> entries = new ArrayList<>();
    for (int number = 0; number < random.nextInt(20); number++) {
      Cell[] cells = new Cell[1 + random.nextInt(12)];
      String row = "r";
      for (int at = 0; at < cells.length; at++) {
        if (random.nextInt(3) == 0) {
          row = "r" + random.nextInt(4);
        }
        String value = new String(new char[random.nextInt(60)]).replace('\0', 'x');
        cells[at] = cell(row, "f", "q" + at, at, TYPES[random.nextInt(TYPES.length)], value);
      }
      entries.add(entry("t" + random.nextInt(2), "region" + random.nextInt(3), number, 9, cells));
    }
    List<String> known = new ArrayList<>();
    int operations = 0;
    for (WAL.Entry entry : entries) {
      Cell before = null;
      for (Cell cell : entry.getEdit().getCells()) {
        operations += before == null || !CellUtil.matchingRows(cell, before) ? 1 : 0;
        known.add(text(entry.getKey(), cell));
        before = cell;
      }
    }
    int size = 1 + random.nextInt(400);
    List<String> found = new ArrayList<>();
    List<Batch> batches = Batch.of(entries, size);
    for (Batch batch : batches) {
      check(batch.operations > 0, "no batch is empty");
      operations -= batch.operations;
      found.addAll(texts(batch.bytes));
      check(batch.bytes.length < size + 12 * 140 + 200, "no batch is much larger than asked");
    }
    check(operations == 0, "operations are counted once; a torn row would count twice");
    check(found.equals(known), "each cell once, in order");
  }

  private static void entriesOfHBasesOwnAreNone() throws IOException {
    Cell own =
        CellBuilderFactory.create(CellBuilderType.DEEP_COPY)
            .setRow(Bytes.toBytes("r"))
            .setFamily(WALEdit.METAFAMILY)
            .setQualifier(Bytes.toBytes("q"))
            .setTimestamp(1)
            .setType(Cell.Type.Put)
            .setValue(new byte[0])
            .build();
    check(!Batch.hasCells(entry("t", "r", 1, 1, own)), "a mark of HBase's");
    check(!Batch.hasCells(entry("t", "r", 1, 1)), "an entry without cells");
    check(Batch.hasCells(entry("t", "r", 1, 1, cell("r", "f", "q", 1, Cell.Type.Put, ""))), "a put");
  }

  /** A plain reader of the form, by its drawing. */
  private static List<String> texts(byte[] bytes) {
    ByteBuffer in = ByteBuffer.wrap(bytes);
    check(in.get() == Batch.VERSION, "version");
    List<String> regions = new ArrayList<>();
    for (int left = in.getShort(); left > 0; left--) {
      regions.add(take(in, in.getShort()) + " " + take(in, in.getShort()));
    }
    List<String> texts = new ArrayList<>();
    while (in.hasRemaining()) {
      String place = regions.get(in.getShort()) + " " + in.getLong() + " " + in.getLong();
      String row = null;
      for (int left = in.getInt(); left > 0; left--) {
        int type = in.get();
        long timestamp = in.getLong();
        int length = in.getShort() & 0xffff;
        row = length == 0xffff ? row : take(in, length);
        String family = take(in, in.get());
        String qualifier = take(in, in.getShort());
        String value = take(in, in.getInt());
        texts.add(String.join(" ", place, "" + type, "" + timestamp, row, family, qualifier, value));
      }
    }
    return texts;
  }

  private static String text(WALKeyImpl key, Cell cell) {
    return String.join(
        " ",
        key.getTableName().getNameAsString(),
        Bytes.toString(key.getEncodedRegionName()),
        "" + key.getSequenceId(),
        "" + key.getWriteTime(),
        "" + cell.getType().getCode(),
        "" + cell.getTimestamp(),
        Bytes.toString(CellUtil.cloneRow(cell)),
        Bytes.toString(CellUtil.cloneFamily(cell)),
        Bytes.toString(CellUtil.cloneQualifier(cell)),
        Bytes.toString(CellUtil.cloneValue(cell)));
  }

  private static String take(ByteBuffer in, int length) {
    byte[] taken = new byte[length];
    in.get(taken);
    return Bytes.toString(taken);
  }

  private static WAL.Entry entry(
      String table, String region, long sequence, long written, Cell... cells) throws IOException {
    WALKeyImpl key =
        new WALKeyImpl(
            Bytes.toBytes(region), TableName.valueOf(table), sequence, written, new UUID(0, 0));
    WALEdit edit = new WALEdit();
    for (Cell cell : cells) {
      edit.getCells().add(cell);
    }
    return new WAL.Entry(key, edit);
  }

  private static Cell cell(
      String row, String family, String qualifier, long at, Cell.Type type, String value) {
    return CellBuilderFactory.create(CellBuilderType.DEEP_COPY)
        .setRow(Bytes.toBytes(row))
        .setFamily(Bytes.toBytes(family))
        .setQualifier(Bytes.toBytes(qualifier))
        .setTimestamp(at)
        .setType(type)
        .setValue(Bytes.toBytes(value))
        .build();
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }
}

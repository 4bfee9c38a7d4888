package viewkeep.hbase;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * What an administrator or HBase itself does to tables: one command a line, and one answer
 * that begins with "= ".
 *
 * <p>{@code split TABLE ROW}, {@code merge TABLE N} and {@code move TABLE N} (the region's place),
 * {@code flush TABLE}, {@code compact TABLE}, {@code disable TABLE}, {@code enable TABLE},
 * {@code regions TABLE}.
 */
public final class Events {
  private static final int SECONDS = 60;

  private Events() {}

  public static void main(String[] none) throws Exception {
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
        Admin admin = connection.getAdmin();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
      System.out.println("= ready");
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        String answer;
        try {
          answer = run(admin, line.split(" "));
        } catch (Exception error) { // HBase was busy with another event
          answer = "no " + error.toString().replace('\n', ' ');
        }
        System.out.println("= " + answer);
      }
    }
  }

  private static String run(Admin admin, String[] words) throws Exception {
    TableName table = TableName.valueOf(words[1]);
    List<RegionInfo> regions = admin.getRegions(table);
    switch (words[0]) {
      case "split":
        byte[] row = Bytes.toBytes(words[2]);
        for (RegionInfo region : regions) {
          if (region.containsRow(row) && !Bytes.equals(region.getStartKey(), row)) {
            admin.splitRegionAsync(region.getRegionName(), row).get(SECONDS, TimeUnit.SECONDS);
            return "ok";
          }
        }
        return "no region to split there";
      case "merge":
        if (regions.size() < 2) {
          return "no two regions";
        }
        int first = Integer.parseInt(words[2]) % (regions.size() - 1);
        byte[][] pair = {
          regions.get(first).getEncodedNameAsBytes(), regions.get(first + 1).getEncodedNameAsBytes()
        };
        admin.mergeRegionsAsync(pair, false).get(SECONDS, TimeUnit.SECONDS);
        return "ok";
      case "move":
        RegionInfo region = regions.get(Integer.parseInt(words[2]) % regions.size());
        ServerName here;
        try (org.apache.hadoop.hbase.client.RegionLocator locator =
            admin.getConnection().getRegionLocator(table)) {
          here = locator.getRegionLocation(region.getStartKey(), true).getServerName();
        }
        for (ServerName server : admin.getRegionServers()) {
          if (!server.equals(here)) {
            admin.move(region.getEncodedNameAsBytes(), server);
            return "ok";
          }
        }
        return "no other server";
      case "flush":
        admin.flush(table);
        return "ok";
      case "compact":
        admin.majorCompact(table);
        return "ok";
      case "disable":
        admin.disableTable(table);
        return "ok";
      case "enable":
        admin.enableTable(table);
        return "ok";
      case "regions":
        return "ok " + regions.size();
      default:
        return "no such event";
    }
  }
}

package viewkeep.hbase;

import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;
import org.apache.hadoop.hbase.replication.ReplicationPeerDescription;

/**
 * Adds, removes and lists viewkeep's peers, where there is no HBase shell.
 *
 * <pre>
 * hbase viewkeep.hbase.Peers add PEER LOG_TABLE [PAUSE] | remove PEER | list
 * </pre>
 */
public final class Peers {
  private Peers() {}

  public static void main(String[] words) throws Exception {
    try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
        Admin admin = connection.getAdmin()) {
      if ((words.length == 3 || words.length == 4) && words[0].equals("add")) {
        admin.addReplicationPeer(
            words[1],
            ReplicationPeerConfig.newBuilder()
                .setReplicationEndpointImpl(LogEndpoint.class.getName())
                .setSerial(true)
                .setReplicateAllUserTables(true)
                .putConfiguration(LogEndpoint.LOG, words[2])
                .putConfiguration(LogEndpoint.PAUSE, words.length == 4 ? words[3] : "50")
                .build());
      } else if (words.length == 2 && words[0].equals("remove")) {
        admin.removeReplicationPeer(words[1]);
      } else if (words.length == 1 && words[0].equals("list")) {
        for (ReplicationPeerDescription peer : admin.listReplicationPeers()) {
          System.out.println(peer.getPeerId() + " " + peer.getPeerConfig());
        }
      } else {
        System.err.println("usage: Peers add PEER LOG_TABLE [PAUSE] | remove PEER | list");
        System.exit(2);
      }
    }
  }
}

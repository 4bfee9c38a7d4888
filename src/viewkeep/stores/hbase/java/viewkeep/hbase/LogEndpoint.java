package viewkeep.hbase;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Abortable;
import org.apache.hadoop.hbase.Server;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.replication.BaseReplicationEndpoint;
import org.apache.hadoop.hbase.util.Bytes;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What region servers run for viewkeep: the target of a serial replication peer.
 *
 * <p>HBase gives it each WAL entry at least once, and those of one region in order, also when the
 * region moves, splits or merges and when a server has died. It says that entries are done only when
 * they are in the log table ({@link Appender}) and the head is past them. While the log table cannot
 * be reached, HBase keeps the WALs and asks again, later and later. It is never in the way of a
 * write.
 *
 * <p>The peer's configuration names the log table as {@code viewkeep.log}, and in {@code
 * viewkeep.pause} says how many milliseconds lie between the beginnings of two appends, at least: 50
 * if it is left out. Entries that come meanwhile are appended together, which costs the servers less.
 * After a quiet moment an entry waits for nothing.
 */
public final class LogEndpoint extends BaseReplicationEndpoint {
  static final String LOG = "viewkeep.log";
  static final String PAUSE = "viewkeep.pause";
  static final byte[] SERVERS = Bytes.toBytes("\0servers");
  private static final Logger LOGGER = LoggerFactory.getLogger(LogEndpoint.class);
  private static final UUID ID =
      UUID.nameUUIDFromBytes("viewkeep".getBytes(StandardCharsets.UTF_8));

  private final Map<String, Appender> appenders = new ConcurrentHashMap<>(); // by WAL group
  private volatile Connection connection;
  private volatile boolean isAnnounced;

  @Override
  public UUID getPeerUUID() {
    return ID;
  }

  @Override
  public void start() {
    startAsync();
  }

  @Override
  public void stop() {
    stopAsync();
  }

  @Override
  protected void doStart() {
    try {
      Configuration settings = new Configuration(ctx.getLocalConfiguration());
      settings.setInt("hbase.client.retries.number", 3); // HBase asks us again
      settings.setInt("hbase.client.operation.timeout", 20_000);
      settings.setInt("hbase.rpc.timeout", 10_000);
      connection = ConnectionFactory.createConnection(settings);
      notifyStarted();
    } catch (IOException error) {
      notifyFailed(error);
      return;
    }
    Thread first = new Thread(this::announceOnce, "viewkeep-announce");
    first.setDaemon(true);
    first.start();
  }

  @Override
  protected void doStop() {
    try {
      for (Appender appender : appenders.values()) {
        appender.close();
      }
      if (connection != null) {
        connection.close();
      }
    } catch (IOException error) {
      LOGGER.warn("closing the connection", error);
    }
    notifyStopped();
  }

  @Override
  public boolean replicate(ReplicateContext context) {
    Appender appender = appenders.computeIfAbsent(context.getWalGroupId(), this::appender);
    try {
      appender.pause(pause());
      if (!isAnnounced) {
        announce();
      }
      appender.append(context.getEntries());
      return true;
    } catch (IOException error) {
      LOGGER.warn("{} cannot be written; HBase will ask again: {}", log(), error.toString());
      return false;
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  private Appender appender(String group) {
    try {
      return new Appender(connection.getTable(log()), server());
    } catch (IOException error) {
      throw new IllegalStateException(error); // it asks no server
    }
  }

  private void announceOnce() {
    try {
      announce();
    } catch (IOException error) {
      LOGGER.warn("{} cannot be written yet: {}", log(), error.toString());
    }
  }

  /** Say in the log table that this server takes part, for people who look what is missing. */
  private void announce() throws IOException {
    boolean serial = ctx.getPeerConfig().isSerial();
    String version = LogEndpoint.class.getPackage().getImplementationVersion();
    String text =
        String.join("\n", ctx.getPeerId(), serial ? "serial" : "not serial", version + "");
    try (Table table = connection.getTable(log())) {
      table.put(
          new Put(SERVERS)
              .addColumn(Heads.FAMILY, Bytes.toBytes(server()), Bytes.toBytes(text)));
    }
    isAnnounced = true;
    LOGGER.info("viewkeep's peer {} appends to {}", ctx.getPeerId(), log());
  }

  private TableName log() {
    return TableName.valueOf(
        ctx.getPeerConfig().getConfiguration().getOrDefault(LOG, "viewkeep:log"));
  }

  private long pause() {
    return Long.parseLong(ctx.getPeerConfig().getConfiguration().getOrDefault(PAUSE, "50"));
  }

  private String server() {
    Abortable owner = ctx.getAbortable();
    return owner instanceof Server ? ((Server) owner).getServerName().toString() : "unknown";
  }
}

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Fills a source cluster with every kind of partition that a mirror must copy byte for byte.
 *
 * Arguments: BOOTSTRAP CONTROLLER RECORDS REPLICATION BROKER_EPOCH. The broker epoch is that of the
 * only node of a cluster of one; -1 leaves the leader epochs alone. CONTROLLER is - for an older Kafka, which
 * cannot be told by the same request to leave one topic alone: its cleaner may run again later. Prints one
 * line for each step, with the seconds it took; exits 1 at the first failure.
 *
 * Topics: codec.{none,gzip,snappy,lz4,zstd}, producers.interleaved, transactions, transaction.open (whose
 * last transaction nobody ends), compacted.gaps, prefix.removed, values.odd, time.append, epochs.high,
 * empty.
 */
public final class DataSet {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    /** Longer than any test: nothing is compacted while two sides are compared. */
    static final String NEVER_MS = "31536000000";
    static final int BUMPS = 10;

    final String bootstrap;
    final String controller;
    final int records;
    final short replication;
    final long brokerEpoch;
    final Admin admin;
    final ExecutorService threads = Executors.newFixedThreadPool(2);
    final long started = System.nanoTime();

    DataSet(String[] args) {
        bootstrap = args[0];
        controller = args[1];
        records = Integer.parseInt(args[2]);
        replication = Short.parseShort(args[3]);
        brokerEpoch = Long.parseLong(args[4]);
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] args) throws Exception {
        DataSet set = new DataSet(args);
        try {
            set.build();
        } finally {
            set.threads.shutdownNow();
            set.admin.close();
        }
        // Producers' daemon threads must not hold a finished build.
        System.exit(0);
    }

    void build() throws Exception {
        createTopics();
        Producing producing = new Producing(bootstrap);
        List<Future<?>> jobs = new ArrayList<>();
        // Several segments, however small the set.
        int compacted = Math.max(records * 8 / 100, 24_000);
        jobs.add(run("compacted.gaps", () -> producing.compacted("compacted.gaps", compacted)));
        for (String codec : CODECS) {
            jobs.add(run("codec." + codec, () -> producing.codec("codec." + codec, codec, records * 16 / 100)));
        }
        jobs.add(run("producers.interleaved",
            () -> producing.interleaved("producers.interleaved", records * 8 / 100)));
        jobs.add(run("transactions", () -> producing.transactions("transactions", records * 8 / 100)));
        jobs.add(run("prefix.removed", () -> producing.codec("prefix.removed", "lz4", records * 8 / 100)));
        jobs.add(run("values.odd", () -> producing.odd("values.odd")));
        jobs.add(run("time.append", () -> producing.codec("time.append", "zstd", records * 2 / 100)));
        for (Future<?> job : jobs) {
            job.get();
        }
        timed("prefix removed", this::removePrefixes);
        timed("compacted", this::compactThenHold);
        timed("compacted tail", () -> producing.compacted("compacted.gaps", records / 100));
        timed("leader epochs", () -> raiseEpochs(producing));
        timed("open transaction", () -> producing.leaveTransactionOpen("transaction.open", 1000));
    }

    Future<?> run(String name, Step step) {
        return threads.submit(() -> {
            timed(name, step);
            return null;
        });
    }

    /** One step of the build. */
    interface Step {
        void run() throws Exception;
    }

    void timed(String name, Step step) throws Exception {
        long before = System.nanoTime();
        step.run();
        long now = System.nanoTime();
        System.out.printf("%-24s %6.2f s, at %6.2f s%n", name, (now - before) / 1e9, (now - started) / 1e9);
    }

    void createTopics() throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String codec : CODECS) {
            topics.add(topic("codec." + codec, 4));
        }
        topics.add(topic("producers.interleaved", 2));
        topics.add(topic("transactions", 2));
        topics.add(topic("transaction.open", 1));
        topics.add(topic("compacted.gaps", 2,
            "cleanup.policy", "compact", "segment.bytes", "1048576", "min.cleanable.dirty.ratio", "0.01",
            "delete.retention.ms", NEVER_MS));
        topics.add(topic("prefix.removed", 3, "segment.bytes", "1048576"));
        topics.add(topic("values.odd", 2));
        topics.add(topic("time.append", 2, "message.timestamp.type", "LogAppendTime"));
        topics.add(topic("epochs.high", 2));
        topics.add(topic("empty", 3));
        admin.createTopics(topics).all().get();
    }

    NewTopic topic(String name, int partitions, String... configs) {
        Map<String, String> all = new HashMap<>();
        // The set is kept between runs: it must not grow old.
        all.put("retention.ms", "-1");
        for (int i = 0; i < configs.length; i += 2) {
            all.put(configs[i], configs[i + 1]);
        }
        return new NewTopic(name, partitions, replication).configs(all);
    }

    /** Partition 0 begins in the middle of a batch, 1 in a later segment, 2 holds nothing any more. */
    void removePrefixes() throws Exception {
        long third = records * 8L / 100 / 3;
        long inBatch = RawBatches.middleOfABatch(bootstrap, "prefix.removed", 0, third / 5);
        admin.deleteRecords(Map.of(
            new TopicPartition("prefix.removed", 0), RecordsToDelete.beforeOffset(inBatch),
            new TopicPartition("prefix.removed", 1), RecordsToDelete.beforeOffset(third * 3 / 4),
            new TopicPartition("prefix.removed", 2), RecordsToDelete.beforeOffset(-1))).all().get();
    }

    /** Waits until the cleaner has left gaps in both partitions, then keeps it from running again. */
    void compactThenHold() throws Exception {
        for (int partition = 0; partition < 2; partition++) {
            long deadline = System.nanoTime() + 60_000_000_000L;
            while (RawBatches.count(bootstrap, "compacted.gaps", partition) * 2
                    > RawBatches.end(bootstrap, "compacted.gaps", partition)) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("compacted.gaps-" + partition + " was not compacted in 60 s");
                }
                Thread.sleep(100);
            }
        }
        if (controller.equals("-")) {
            return;
        }
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "compacted.gaps");
        admin.incrementalAlterConfigs(Map.of(topic, Arrays.asList(
            set("min.cleanable.dirty.ratio", "1"), set("min.compaction.lag.ms", NEVER_MS)))).all().get();
    }

    static AlterConfigOp set(String key, String value) {
        return new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
    }

    void raiseEpochs(Producing producing) throws Exception {
        Fence fence = brokerEpoch < 0 ? null : new Fence(bootstrap, controller, brokerEpoch);
        for (int round = 0; round <= BUMPS; round++) {
            producing.codec("epochs.high", CODECS[round % CODECS.length], records / 2000);
            if (fence != null && round < BUMPS) {
                fence.raiseLeaderEpochs("epochs.high");
            }
        }
    }
}

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Applications that write all the time: idempotent producers that go on whatever happens to the cluster,
 * and transactional ones whose transactions are open most of the time and that end with the first failure.
 * Prints a line for each acknowledged record of the idempotent ones: "acked", topic, partition, offset, value. Every value is
 * written once. Ends when a file appears and nothing is under way.
 *
 * Arguments: BOOTSTRAP STOP_FILE TOPIC...
 */
public final class SteadyProducers {
    private static final int IDEMPOTENT = 2;
    private static final int TRANSACTIONAL = 3;
    private static final int TRANSACTION_RECORDS = 40;
    private static final PrintStream OUT =
        new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    private final String bootstrap;
    private final Path stopFile;
    private final List<String> topics;

    private SteadyProducers(String[] args) {
        bootstrap = args[0];
        stopFile = Path.of(args[1]);
        topics = List.of(args).subList(2, args.length);
    }

    public static void main(String[] args) throws Exception {
        SteadyProducers steady = new SteadyProducers(args);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < IDEMPOTENT; i++) {
            String name = "idempotent" + i;
            threads.add(new Thread(() -> steady.writeOn(name)));
        }
        for (int i = 0; i < TRANSACTIONAL; i++) {
            String name = "transactional" + i;
            Thread thread = new Thread(() -> steady.writeTransactions(name));
            // Its close would wait for a coordinator that may have gone for good.
            thread.setDaemon(true);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        OUT.println("ended");
        Runtime.getRuntime().halt(0);
    }

    private boolean goesOn() {
        return !Files.exists(stopFile);
    }

    private void writeOn(String name) {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("enable.idempotence", "true"))) {
            for (int i = 0; goesOn(); i++) {
                String value = name + "-" + i;
                producer.send(record(i, value), (metadata, failure) -> {
                    if (failure == null) {
                        OUT.println("acked " + metadata.topic() + " " + metadata.partition() + " " + metadata.offset()
                            + " " + value);
                    } else {
                        OUT.println("failed " + value + " " + failure);
                    }
                });
                pause();
            }
            producer.flush();
        }
    }

    private void writeTransactions(String name) {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("transactional.id", name));
        try {
            producer.initTransactions();
            for (int round = 0; goesOn(); round++) {
                producer.beginTransaction();
                for (int i = 0; i < TRANSACTION_RECORDS; i++) {
                    producer.send(record(round * 7 + i, name + "-" + round + "-" + i));
                    pause();
                }
                producer.flush();
                if (round % 3 == 0) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                OUT.println("transaction " + name + " " + round);
            }
        } catch (KafkaException failure) {
            OUT.println("stopped " + name + " " + failure);
        }
    }

    private ProducerRecord<byte[], byte[]> record(int i, String value) {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        return new ProducerRecord<>(topics.get(i % topics.size()), 0, bytes, bytes);
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, String> more) {
        Map<String, Object> configs = new java.util.HashMap<>(Map.of("bootstrap.servers", bootstrap,
            "acks", "all", "linger.ms", "2", "request.timeout.ms", "3000", "delivery.timeout.ms", "120000",
            "reconnect.backoff.max.ms", "200", "max.block.ms", "120000"));
        configs.putAll(more);
        return new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void pause() {
        try {
            Thread.sleep(2);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }
}

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes records of one kind into one topic. Each call ends when all of them are acknowledged. */
final class Producing {
    private static final int ODD_ROUNDS = 4;
    private static final int LARGE_VALUE_BYTES = 900 * 1024;
    private static final int TRANSACTION_RECORDS = 200;

    private final String bootstrap;

    Producing(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    /** Keyed records of some 100 bytes in one codec; every second batch size is small. */
    void codec(String topic, String codec, int records) {
        try (Sender sender = new Sender(Map.of("compression.type", codec))) {
            Random random = new Random(topic.hashCode());
            for (int i = 0; i < records; i++) {
                sender.send(new ProducerRecord<>(topic, key(i), value(random, i)));
                if (i % 20_000 == 10_000) {
                    sender.flush();
                }
            }
        }
    }

    /** Four idempotent producers take turns, so that the batches of each lie among those of the others. */
    void interleaved(String topic, int records) {
        List<Sender> senders = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            senders.add(new Sender(Map.of("batch.size", "2048", "linger.ms", "1",
                "compression.type", DataSet.CODECS[i])));
        }
        Random random = new Random(4);
        for (int i = 0; i < records; i++) {
            senders.get(random.nextInt(4)).send(new ProducerRecord<>(topic, key(i), value(random, i)));
        }
        for (Sender sender : senders) {
            sender.close();
        }
    }

    /** Two transactional producers whose transactions overlap; every third is aborted. */
    void transactions(String topic, int records) {
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            producers.add(producer(Map.of("transactional.id", topic + "-" + i, "batch.size", "4096",
                "linger.ms", "1", "compression.type", i == 0 ? "none" : "lz4")));
            producers.get(i).initTransactions();
        }
        Random random = new Random(5);
        for (int round = 0; round * 2 * TRANSACTION_RECORDS < records; round++) {
            for (KafkaProducer<byte[], byte[]> producer : producers) {
                producer.beginTransaction();
            }
            for (int i = 0; i < 2 * TRANSACTION_RECORDS; i++) {
                producers.get(i / 50 % 2).send(new ProducerRecord<>(topic, key(i), value(random, i)));
            }
            for (int i = 0; i < 2; i++) {
                producers.get(i).flush();
                if ((round + i) % 3 == 0) {
                    producers.get(i).abortTransaction();
                } else {
                    producers.get(i).commitTransaction();
                }
            }
        }
        for (KafkaProducer<byte[], byte[]> producer : producers) {
            producer.close();
        }
    }

    /** One transaction committed, then one that nobody ends: the last stable offset stays before it. */
    void leaveTransactionOpen(String topic, int records) {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("transactional.id", topic,
            "transaction.timeout.ms", String.valueOf(Integer.MAX_VALUE)));
        producer.initTransactions();
        Random random = new Random(8);
        for (int round = 0; round < 2; round++) {
            producer.beginTransaction();
            for (int i = 0; i < records / 2; i++) {
                producer.send(new ProducerRecord<>(topic, key(i), value(random, i)));
            }
            producer.flush();
            if (round == 0) {
                producer.commitTransaction();
            }
        }
        // Neither ended nor closed: a close would abort it.
    }

    /** Few keys many times, some of them deleted: what a cleaner can take away. Both codecs' batches get gaps. */
    void compacted(String topic, int records) {
        for (int partition = 0; partition < 2; partition++) {
            try (Sender sender = new Sender(Map.of("compression.type", partition == 0 ? "none" : "zstd",
                    "batch.size", "16384", "linger.ms", "2"))) {
                Random random = new Random(6 + partition);
                for (int i = 0; i < records / 2; i++) {
                    int key = random.nextInt(20) == 0 ? 100_000 + i : random.nextInt(500);
                    byte[] value = i % 97 == 0 ? null : value(random, i, 400);
                    sender.send(new ProducerRecord<>(topic, partition, key(key), value));
                }
            }
        }
    }

    /** Values of no bytes, no value, values of 900 KB, no key, an empty key, headers that come twice. */
    void odd(String topic) {
        try (Sender sender = new Sender(Map.of("linger.ms", "0"))) {
            byte[] large = new byte[LARGE_VALUE_BYTES];
            new Random(7).nextBytes(large);
            for (int i = 0; i < ODD_ROUNDS; i++) {
                int partition = i % 2;
                sender.send(new ProducerRecord<>(topic, partition, key(i), new byte[0]));
                sender.send(new ProducerRecord<>(topic, partition, key(i), null));
                sender.send(new ProducerRecord<>(topic, partition, null, value(new Random(i), i)));
                sender.send(new ProducerRecord<>(topic, partition, new byte[0], value(new Random(i), i)));
                sender.send(new ProducerRecord<>(topic, partition, null, null));
                sender.send(new ProducerRecord<>(topic, partition, key(i), large));
                sender.send(withHeaders(new ProducerRecord<>(topic, partition, key(i), value(new Random(i), i))));
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> withHeaders(ProducerRecord<byte[], byte[]> record) {
        record.headers().add("twice", "first".getBytes(StandardCharsets.UTF_8));
        record.headers().add("other", new byte[0]);
        record.headers().add("twice", "second".getBytes(StandardCharsets.UTF_8));
        record.headers().add("twice", null);
        record.headers().add("", "a header without a name".getBytes(StandardCharsets.UTF_8));
        return record;
    }

    static byte[] key(int i) {
        return ("key-" + i).getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] value(Random random, int i) {
        return value(random, i, 40 + random.nextInt(80));
    }

    /** Text that compresses about as well as JSON does. */
    private static byte[] value(Random random, int i, int bytes) {
        StringBuilder text = new StringBuilder(bytes + 24).append("{\"id\":").append(i).append(",\"text\":\"");
        while (text.length() < bytes) {
            text.append(Long.toString(random.nextLong() >>> 40, 36)).append(" mirror ");
        }
        return text.append("\"}").toString().getBytes(StandardCharsets.UTF_8);
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, String> extra) {
        Map<String, Object> configs = new HashMap<>();
        configs.put("bootstrap.servers", bootstrap);
        configs.put("acks", "all");
        // A leader that is just beginning may refuse a batch and accept the next; with both under way, the
        // first would be out of order for ever.
        configs.put("max.in.flight.requests.per.connection", "1");
        configs.put("linger.ms", "5");
        configs.put("batch.size", "32768");
        configs.putAll(extra);
        return new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** A producer that remembers its first failure and throws it when it is closed. */
    private final class Sender implements AutoCloseable {
        private final KafkaProducer<byte[], byte[]> producer;
        private final AtomicReference<Exception> failure = new AtomicReference<>();

        Sender(Map<String, String> extra) {
            producer = producer(extra);
        }

        void send(ProducerRecord<byte[], byte[]> record) {
            producer.send(record, (metadata, error) -> failure.compareAndSet(null, error));
        }

        void flush() {
            producer.flush();
        }

        @Override
        public void close() {
            producer.close();
            if (failure.get() != null) {
                throw new IllegalStateException(failure.get());
            }
        }
    }
}

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What one partition of the source holds now. */
final class RawBatches {
    private RawBatches() {
    }

    /** An offset that is neither the first nor the last of its batch, at or above the one asked for. */
    static long middleOfABatch(String bootstrap, String topic, int partition, long from) {
        // A batch is the least unit of a fetch: with a limit of one byte, each answer is one batch.
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of("max.partition.fetch.bytes", "1"))) {
            TopicPartition id = new TopicPartition(topic, partition);
            consumer.assign(List.of(id));
            consumer.seek(id, from);
            while (true) {
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofSeconds(10));
                if (batch.isEmpty()) {
                    throw new IllegalStateException(id + " has no batch of three records from offset " + from);
                }
                List<ConsumerRecord<byte[], byte[]>> records = batch.records(id);
                if (records.size() >= 3) {
                    return records.get(records.size() - 2).offset();
                }
            }
        }
    }

    /** How many records a consumer sees. */
    static long count(String bootstrap, String topic, int partition) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of())) {
            TopicPartition id = new TopicPartition(topic, partition);
            consumer.assign(List.of(id));
            consumer.seekToBeginning(List.of(id));
            long end = consumer.endOffsets(List.of(id)).get(id);
            long count = 0;
            while (consumer.position(id) < end) {
                count += consumer.poll(Duration.ofSeconds(1)).count();
            }
            return count;
        }
    }

    /** The offset after the last record. */
    static long end(String bootstrap, String topic, int partition) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of())) {
            TopicPartition id = new TopicPartition(topic, partition);
            return consumer.endOffsets(List.of(id)).get(id);
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, Map<String, Object> extra) {
        Map<String, Object> configs = new java.util.HashMap<>(extra);
        configs.put("bootstrap.servers", bootstrap);
        configs.put("max.poll.records", "100000");
        configs.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
}

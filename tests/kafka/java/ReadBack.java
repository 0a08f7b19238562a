import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads topics by partition from their beginnings to their ends and prints a line for each record: topic, partition,
 * offset, value. The last line of a partition says where the consumer stands then: "end", topic, partition, position.
 *
 * Arguments: BOOTSTRAP ISOLATION_LEVEL TOPIC...
 */
public final class ReadBack {
    private ReadBack() {
    }

    public static void main(String[] args) {
        Map<String, Object> configs = Map.of("bootstrap.servers", args[0], "isolation.level", args[1]);
        StringBuilder out = new StringBuilder();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : List.of(args).subList(2, args.length)) {
                for (PartitionInfo partition : consumer.partitionsFor(topic)) {
                    partitions.add(new TopicPartition(topic, partition.partition()));
                }
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    out.append(record.topic()).append(' ').append(record.partition()).append(' ')
                        .append(record.offset()).append(' ')
                        .append(new String(record.value(), StandardCharsets.UTF_8)).append('\n');
                }
            }
            for (TopicPartition partition : partitions) {
                out.append("end ").append(partition.topic()).append(' ').append(partition.partition()).append(' ')
                    .append(consumer.position(partition)).append('\n');
            }
        }
        System.out.print(out);
    }
}

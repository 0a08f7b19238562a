import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends one record and prints what came of it: "written" and the offset, or the class and the message of
 * the error. Arguments: BOOTSTRAP TOPIC PARTITION [KEY=VALUE...] (further producer configs).
 */
public final class ReadOnlyProducer {
    private ReadOnlyProducer() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> configs = new HashMap<>();
        configs.put("bootstrap.servers", args[0]);
        configs.put("delivery.timeout.ms", "20000");
        configs.put("request.timeout.ms", "10000");
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            configs.put(pair[0], pair[1]);
        }
        StringSerializer strings = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(configs, strings, strings)) {
            ProducerRecord<String, String> record =
                new ProducerRecord<>(args[1], Integer.valueOf(args[2]), "key", "value");
            System.out.println("written at offset " + producer.send(record).get().offset());
        } catch (ExecutionException refused) {
            Throwable cause = refused.getCause();
            System.out.println(cause.getClass().getName() + ": " + cause.getMessage());
        }
    }
}

import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.tools.consumer.ConsoleConsumer;

/**
 * Runs kafka-console-consumer over every partition of every topic, in both isolation levels, and prints
 * one line for each: topic, partition, isolation level, lines, bytes, SHA-256 of what the tool printed.
 * One process, because starting hundreds would take minutes.
 *
 * Arguments: BOOTSTRAP TIMEOUT_MS [TOPIC...]. The timeout is how long the tool waits for a record after
 * the last.
 */
public final class ConsoleDigests {
    private static final String[] LEVELS = {"read_uncommitted", "read_committed"};
    private static final int AT_ONCE = 8;
    private static final ThreadLocal<OutputStream> OUTPUT = new ThreadLocal<>();

    private ConsoleDigests() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
        System.setOut(new PerThread());
        ExecutorService threads = Executors.newFixedThreadPool(AT_ONCE);
        List<Future<String>> lines = new ArrayList<>();
        for (Map.Entry<String, Integer> topic : partitions(args).entrySet()) {
            for (int i = 0; i < topic.getValue(); i++) {
                int partition = i;
                for (String level : LEVELS) {
                    lines.add(threads.submit(() -> digest(args, topic.getKey(), partition, level)));
                }
            }
        }
        for (Future<String> line : lines) {
            out.println(line.get());
        }
        threads.shutdown();
    }

    private static Map<String, Integer> partitions(String[] args) throws Exception {
        List<String> names = new ArrayList<>();
        for (int i = 2; i < args.length; i++) {
            names.add(args[i]);
        }
        Map<String, Integer> counts = new TreeMap<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            if (names.isEmpty()) {
                names.addAll(admin.listTopics().names().get());
            }
            for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get().values()) {
                counts.put(topic.name(), topic.partitions().size());
            }
        }
        return counts;
    }

    private static String digest(String[] args, String topic, int partition, String level) throws Exception {
        Digest digest = new Digest();
        OutputStream buffered = new BufferedOutputStream(digest, 64 * 1024);
        OUTPUT.set(buffered);
        List<String> arguments = new ArrayList<>(List.of("--bootstrap-server", args[0], "--topic", topic,
            "--partition", String.valueOf(partition), "--offset", "earliest", "--isolation-level", level,
            "--timeout-ms", args[1]));
        for (String shown : List.of("timestamp", "key", "offset", "partition", "headers", "epoch")) {
            arguments.add("--formatter-property");
            arguments.add("print." + shown + "=true");
        }
        ConsoleConsumer.main(arguments.toArray(String[]::new));
        buffered.flush();
        return topic + " " + partition + " " + level + " " + digest.result();
    }

    /**
     * The tool prints to System.out: what it prints goes to the digest of the thread that runs it. The
     * formatter's many small writes take no lock, unlike a PrintStream's.
     */
    private static final class PerThread extends PrintStream {
        PerThread() {
            super(new OutputStream() {
                @Override
                public void write(int one) throws IOException {
                    OUTPUT.get().write(one);
                }

                @Override
                public void write(byte[] bytes, int from, int count) throws IOException {
                    OUTPUT.get().write(bytes, from, count);
                }
            }, false);
        }

        @Override
        public void write(int one) {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes) {
            write(bytes, 0, bytes.length);
        }

        @Override
        public void write(byte[] bytes, int from, int count) {
            try {
                OUTPUT.get().write(bytes, from, count);
            } catch (IOException impossible) {
                throw new UncheckedIOException(impossible);
            }
        }

        @Override
        public boolean checkError() {
            return false;
        }
    }

    private static final class Digest extends OutputStream {
        private final MessageDigest sha = MessageDigest.getInstance("SHA-256");
        private long bytes;
        private long lines;

        Digest() throws java.security.NoSuchAlgorithmException {
            super();
        }

        @Override
        public void write(int one) {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] from, int at, int count) {
            sha.update(from, at, count);
            bytes += count;
            for (int i = at; i < at + count; i++) {
                if (from[i] == '\n') {
                    lines++;
                }
            }
        }

        String result() {
            StringBuilder hex = new StringBuilder();
            for (byte one : sha.digest()) {
                hex.append(String.format("%02x", one));
            }
            return lines + " lines, " + bytes + " bytes, " + hex;
        }
    }
}

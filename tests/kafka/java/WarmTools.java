import java.util.concurrent.Callable;
import org.apache.kafka.common.utils.internals.Exit;
import org.apache.kafka.tools.GetOffsetShell;
import org.apache.kafka.tools.ProducerPerformance;
import org.apache.kafka.tools.TopicCommand;
import org.apache.kafka.tools.consumer.ConsoleConsumer;

/**
 * Loads what the tools load, so that the class archive made when this process ends holds it. Argument:
 * the address of a broker.
 */
public final class WarmTools {
    private WarmTools() {
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            if (status != 0) {
                throw new IllegalStateException("a tool ended with " + status + ": " + message);
            }
        });
        quietly(() -> run(args[0]));
    }

    private static Void run(String bootstrap) throws Exception {
        String[] at = {"--bootstrap-server", bootstrap};
        TopicCommand.main(with(at, "--create", "--topic", "warm", "--partitions", "1"));
        TopicCommand.main(with(at, "--describe"));
        ProducerPerformance.main(with(at, "--topic", "warm", "--num-records", "1000", "--record-size", "100",
            "--throughput", "-1"));
        GetOffsetShell.main(at);
        ConsoleConsumer.main(with(at, "--topic", "warm", "--partition", "0", "--offset", "earliest",
            "--max-messages", "1000"));
        TopicCommand.main(with(at, "--delete", "--topic", "warm"));
        return null;
    }

    private static String[] with(String[] first, String... more) {
        String[] all = java.util.Arrays.copyOf(first, first.length + more.length);
        System.arraycopy(more, 0, all, first.length, more.length);
        return all;
    }

    /** The tools print to standard output, which nobody wants to see here. */
    private static void quietly(Callable<Void> job) throws Exception {
        java.io.PrintStream before = System.out;
        System.setOut(new java.io.PrintStream(java.io.OutputStream.nullOutputStream()));
        try {
            job.call();
        } finally {
            System.setOut(before);
        }
    }
}

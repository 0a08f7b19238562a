import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs one of Kafka's command-line tools after another, because starting a Java process costs more than
 * what most of them do. Each is its own main with its own arguments, input, outputs and exit code, as if it
 * ran alone: it has a thread group, by which all its threads are told from those of the others.
 *
 * A command on standard input: the class, the number of arguments, the arguments, the input. Its answer on standard output: the exit code, what it wrote to standard output and to standard
 * error. Numbers have four bytes, most significant first; texts and bytes follow their length. It ends
 * with its input. What no command wrote goes to standard error.
 *
 * A command ends as a process does: with its first Exit.exit, or when its last thread that is no daemon
 * has ended; then its shutdown hooks run. What it writes after that is lost.
 */
public final class ToolServer {
    private static final PrintStream NOBODY = System.err;

    private ToolServer() {
    }

    public static void main(String[] args) throws Exception {
        DataInputStream commands = new DataInputStream(
            new BufferedInputStream(new FileInputStream(FileDescriptor.in)));
        DataOutputStream answers = new DataOutputStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
        // Before anything logs: the logger keeps the stream that it finds.
        System.setIn(new InputOfCommand());
        System.setOut(new PrintStream(new OutputOfCommand(Stream.OUT), true, Charset.defaultCharset()));
        System.setErr(new PrintStream(new OutputOfCommand(Stream.ERR), true, Charset.defaultCharset()));
        Exit.setExitProcedure((status, message) -> Command.current().exit(status));
        Exit.setHaltProcedure((status, message) -> Command.current().exit(status));
        Exit.setShutdownHookAdder((name, hook) -> Command.current().addHook(hook));
        while (true) {
            String tool;
            try {
                tool = new String(bytes(commands, commands.readInt()), StandardCharsets.UTF_8);
            } catch (EOFException done) {
                return;
            }
            String[] arguments = new String[commands.readInt()];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = new String(bytes(commands, commands.readInt()), StandardCharsets.UTF_8);
            }
            Command command = new Command(bytes(commands, commands.readInt()));
            answers.writeInt(command.run(tool, arguments));
            for (Stream stream : Stream.values()) {
                byte[] written = command.written(stream);
                answers.writeInt(written.length);
                answers.write(written);
            }
            answers.flush();
        }
    }

    private static byte[] bytes(DataInputStream from, int count) throws IOException {
        byte[] bytes = new byte[count];
        from.readFully(bytes);
        return bytes;
    }

    private enum Stream { OUT, ERR }

    /** Unwinds a thread that called Exit.exit, which does not return. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1;

        Exited() {
            super("the command has ended", null, false, false);
        }
    }

    /** One command, and the group of its threads. */
    private static final class Command extends ThreadGroup {
        private final ByteArrayOutputStream[] outputs = {new ByteArrayOutputStream(), new ByteArrayOutputStream()};
        private final InputStream input;
        private final List<Runnable> hooks = new ArrayList<>();
        private final CompletableFuture<Integer> code = new CompletableFuture<>();
        private boolean exiting;
        private boolean ended;

        Command(byte[] input) {
            super("command");
            this.input = new ByteArrayInputStream(input);
        }

        /** The command that the current thread belongs to; null for none. */
        static Command ofThread() {
            ThreadGroup group = Thread.currentThread().getThreadGroup();
            while (group != null && !(group instanceof Command)) {
                group = group.getParent();
            }
            return (Command) group;
        }

        static Command current() {
            Command command = ofThread();
            if (command == null) {
                throw new IllegalStateException("a thread of no command wants to end one");
            }
            return command;
        }

        int run(String tool, String[] arguments) throws Exception {
            // What a Java process calls its first thread; a stack trace names it.
            new Thread(this, () -> runMain(tool, arguments), "main").start();
            return code.get();
        }

        private void runMain(String tool, String[] arguments) {
            int status = 0;
            try {
                Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            } catch (InvocationTargetException thrown) {
                if (thrown.getCause() instanceof Exited) {
                    return;
                }
                uncaughtException(Thread.currentThread(), thrown.getCause());
                status = 1;
            } catch (ReflectiveOperationException none) {
                uncaughtException(Thread.currentThread(), none);
                status = 1;
            }
            joinOthers();
            try {
                exit(status);
            } catch (Exited done) {
                return;
            }
        }

        private void joinOthers() {
            Thread[] threads = new Thread[activeCount() + 16];
            int count = enumerate(threads);
            for (int i = 0; i < count; i++) {
                if (!threads[i].isDaemon() && threads[i] != Thread.currentThread()) {
                    try {
                        threads[i].join();
                    } catch (InterruptedException early) {
                        throw new IllegalStateException(early);
                    }
                }
            }
        }

        void exit(int status) {
            List<Runnable> toRun = List.of();
            synchronized (this) {
                if (!exiting) {
                    exiting = true;
                    toRun = List.copyOf(hooks);
                }
            }
            for (Runnable hook : toRun) {
                hook.run();
            }
            synchronized (this) {
                ended = true;
            }
            code.complete(status);
            throw new Exited();
        }

        synchronized void addHook(Runnable hook) {
            hooks.add(hook);
        }

        @Override
        public void uncaughtException(Thread thread, Throwable thrown) {
            if (!(thrown instanceof Exited)) {
                super.uncaughtException(thread, thrown);
            }
        }

        synchronized void write(Stream stream, byte[] bytes, int from, int count) {
            if (!ended) {
                outputs[stream.ordinal()].write(bytes, from, count);
            }
        }

        synchronized byte[] written(Stream stream) {
            return outputs[stream.ordinal()].toByteArray();
        }
    }

    private static final class InputOfCommand extends InputStream {
        @Override
        public int read() throws IOException {
            return Command.current().input.read();
        }

        @Override
        public int read(byte[] into, int at, int count) throws IOException {
            return Command.current().input.read(into, at, count);
        }

        @Override
        public int available() throws IOException {
            return Command.current().input.available();
        }
    }

    private static final class OutputOfCommand extends OutputStream {
        private final Stream stream;

        OutputOfCommand(Stream stream) {
            super();
            this.stream = stream;
        }

        @Override
        public void write(int one) {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int from, int count) {
            Command command = Command.ofThread();
            if (command == null) {
                NOBODY.write(bytes, from, count);
            } else {
                command.write(stream, bytes, from, count);
            }
        }
    }
}

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.concurrent.SynchronousQueue;
import kafka.admin.ConfigCommand;
import org.apache.kafka.common.utils.Exit;

/**
 * kafka-configs, run many times in one process: to start one takes seconds.
 *
 * <p>Each line of input is a command's arguments, with unit separators between them; each line of output its exit status
 * and what it wrote to its two streams, in Base64.
 */
public final class ConfigCommands {
    private static final class Switched extends OutputStream {
        volatile ByteArrayOutputStream to = new ByteArrayOutputStream();

        @Override
        public void write(int one) {
            to.write(one);
        }

        @Override
        public void write(byte[] bytes, int from, int length) {
            to.write(bytes, from, length);
        }

        String taken() {
            return Base64.getEncoder().encodeToString(to.toByteArray());
        }
    }

    private ConfigCommands() {}

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        // Set before the command is loaded: Scala keeps the stream that is there at first.
        Switched out = new Switched();
        Switched err = new Switched();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        SynchronousQueue<Integer> ended = new SynchronousQueue<>();
        Exit.setExitProcedure((status, message) -> {
            end(ended, status);
            // The command thinks that it is gone: nothing behind the exit may run.
            while (true) {
                try {
                    Thread.sleep(Long.MAX_VALUE);
                } catch (InterruptedException error) {
                    continue;
                }
            }
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] arguments = line.split("\u001f");
            out.to = new ByteArrayOutputStream();
            err.to = new ByteArrayOutputStream();
            Thread command = new Thread(() -> {
                ConfigCommand.main(arguments);
                end(ended, 0);
            }, "main");
            command.setDaemon(true);
            command.start();
            int status = ended.take();
            answers.println(status + " " + out.taken() + " " + err.taken());
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void end(SynchronousQueue<Integer> ended, int status) {
        try {
            ended.put(status);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}

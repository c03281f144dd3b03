import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/** Runs kafka-configs for each line that it reads: words between tabs. Prints what that prints, and then a line of a
 * zero byte and "done" or "failed". A start of Java takes longer than most of these commands. */
public class ConfigCommands {
    private static final class Ended extends RuntimeException {
        Ended(String message) {
            super(message);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(out);
        System.setErr(out);
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status + (message == null ? "" : ": " + message));
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String end = "done";
            try {
                Class.forName("kafka.admin.ConfigCommand")
                    .getMethod("main", String[].class)
                    .invoke(null, (Object) line.split("\t", -1));
            } catch (InvocationTargetException error) {
                out.println(error.getCause());
                end = "failed";
            }
            out.println("\0" + end);
        }
    }
}

import java.nio.charset.StandardCharsets;
import java.security.Provider;
import java.security.Security;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.security.auth.Subject;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.spi.LoginModule;
import javax.security.sasl.SaslException;
import javax.security.sasl.SaslServer;
import javax.security.sasl.SaslServerFactory;

/** Mechanisms that a broker has only by what its operator has put on its class path.
 *
 * TWO-ROUNDS asks whoever says a name for a word, which is "word of NAME". AWS_MSK_IAM has the form of Amazon's, one
 * message in JSON, and takes whoever has an access key for a user of that name; it checks no signature. */
public final class CustomSasl implements LoginModule {
    static {
        Security.addProvider(new Mechanisms());
    }

    public static final class Mechanisms extends Provider {
        public Mechanisms() {
            super("CustomSasl", "1", "mechanisms of a test");
            put("SaslServerFactory.TWO-ROUNDS", Factory.class.getName());
            put("SaslServerFactory.AWS_MSK_IAM", Factory.class.getName());
        }
    }

    public static final class Factory implements SaslServerFactory {
        @Override
        public SaslServer createSaslServer(
                String mechanism, String protocol, String server, Map<String, ?> settings, CallbackHandler handler) {
            return new Server(mechanism);
        }

        @Override
        public String[] getMechanismNames(Map<String, ?> settings) {
            return new String[] {"TWO-ROUNDS", "AWS_MSK_IAM"};
        }
    }

    private static final class Server implements SaslServer {
        private static final Pattern ACCESS_KEY = Pattern.compile("\"x-amz-credential\" *: *\"([A-Z0-9]+)/");
        private final String mechanism;
        private String name;
        private boolean complete;

        Server(String mechanism) {
            this.mechanism = mechanism;
        }

        @Override
        public byte[] evaluateResponse(byte[] token) throws SaslException {
            String message = new String(token, StandardCharsets.UTF_8);
            if (mechanism.equals("AWS_MSK_IAM")) {
                Matcher found = ACCESS_KEY.matcher(message);
                if (!found.find()) {
                    throw new SaslException("no access key");
                }
                name = found.group(1);
                complete = true;
                return "{\"version\":\"2020_10_22\",\"request-id\":\"none\"}".getBytes(StandardCharsets.UTF_8);
            }
            if (name == null) {
                name = message;
                return "and the word?".getBytes(StandardCharsets.UTF_8);
            }
            if (!message.equals("word of " + name)) {
                throw new SaslException("not the word");
            }
            complete = true;
            return "welcome".getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String getMechanismName() {
            return mechanism;
        }

        @Override
        public boolean isComplete() {
            return complete;
        }

        @Override
        public String getAuthorizationID() {
            return name;
        }

        @Override
        public byte[] unwrap(byte[] incoming, int offset, int length) {
            throw new IllegalStateException("no security layer");
        }

        @Override
        public byte[] wrap(byte[] outgoing, int offset, int length) {
            throw new IllegalStateException("no security layer");
        }

        @Override
        public Object getNegotiatedProperty(String property) {
            return null;
        }

        @Override
        public void dispose() {}
    }

    @Override
    public void initialize(
            Subject subject, CallbackHandler handler, Map<String, ?> shared, Map<String, ?> options) {}

    @Override
    public boolean login() {
        return true;
    }

    @Override
    public boolean commit() {
        return true;
    }

    @Override
    public boolean abort() {
        return false;
    }

    @Override
    public boolean logout() {
        return true;
    }
}

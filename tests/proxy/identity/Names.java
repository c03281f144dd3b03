import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Answers what Java and Kafka make of names: a question a line, its words in base64 but for the first. */
public final class Names {
    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String answer;
            try {
                answer = String.join(" ", answers(line.split(" ", -1)));
            } catch (Exception refused) {
                answer = "refused";
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static List<String> answers(String[] words) throws Exception {
        List<String> answers = new ArrayList<>();
        switch (words[0]) {
            case "subject":
                answers.add(word(new X500Principal(Base64.getDecoder().decode(words[1])).getName()));
                break;
            case "ssl":
                answers.add(word(SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2]))));
                break;
            case "kerberos":
                KerberosShortNamer rules = KerberosShortNamer.fromUnparsedRules("R", List.of(text(words[1])));
                answers.add(word(rules.shortName(KerberosName.parse(text(words[2])))));
                break;
            case "find":
                Matcher matcher = Pattern.compile(text(words[1])).matcher(text(words[2]));
                answers.add(String.valueOf(matcher.matches()));
                matcher.reset();
                while (matcher.find()) {
                    answers.add(String.valueOf(matcher.start()));
                    for (int group = 0; group <= matcher.groupCount(); group++) {
                        answers.add(matcher.group(group) == null ? "-" : word(matcher.group(group)));
                    }
                }
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
        return answers;
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String word(String text) {
        return "=" + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}

import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.main.Main;

/** A Camel route from the topic to its copy, until it is stopped. */
public final class Camel {
    public static void main(String[] words) throws Exception {
        String options = "?brokers=" + words[0] + "&clientId=" + words[2];
        Main main = new Main();
        main.configure().addRoutesBuilder(new RouteBuilder() {
            @Override
            public void configure() {
                from("kafka:" + words[2] + options + "&autoOffsetReset=earliest&groupId=" + words[2])
                    .removeHeaders("kafka.*").to("kafka:copy." + words[2] + options);
            }
        });
        main.run();
    }
}

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;

/** Topics created, grown and deleted, all in one request each, which the client repeats for those that are refused. */
public final class Topics {
    private Topics() {}

    /** bootstrap, client-id, prefix, topics, partitions of each. Says what is over, one word a line. */
    public static void main(String[] arguments) throws Exception {
        Properties given = new Properties();
        given.put("bootstrap.servers", arguments[0]);
        given.put("client.id", arguments[1]);
        given.put("default.api.timeout.ms", "120000");
        int partitions = Integer.parseInt(arguments[4]);
        List<NewTopic> topics = new ArrayList<>();
        List<String> names = new ArrayList<>();
        Map<String, NewPartitions> grown = new HashMap<>();
        for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
            String name = arguments[2] + "-" + number;
            names.add(name);
            topics.add(new NewTopic(name, partitions, (short) 1));
            grown.put(name, NewPartitions.increaseTo(partitions + 1));
        }
        try (Admin admin = Admin.create(given)) {
            admin.createTopics(topics).all().get();
            System.out.println("created");
            admin.createPartitions(grown).all().get();
            System.out.println("grown");
            admin.deleteTopics(names).all().get();
            System.out.println("deleted");
        }
    }
}

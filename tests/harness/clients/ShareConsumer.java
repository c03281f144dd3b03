import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A consumer of a share group (KIP-932), from the beginning: BOOTSTRAP CLIENT_ID TOPIC GROUP SECONDS. Prints each second what came. */
public final class ShareConsumer {
    private static final long REPORT_MS = 1000;

    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("client.id", words[1]);
        settings.put("group.id", words[3]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        fromTheBeginning(words[0], words[3]);
        long bytes = 0;
        long startMs = System.nanoTime() / 1_000_000;
        long untilMs = startMs + (long) (Double.parseDouble(words[4]) * 1000);
        long reportMs = startMs;
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(Collections.singletonList(words[2]));
            while (System.nanoTime() / 1_000_000 < untilMs) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    bytes += record.value().length;
                }
                if (System.nanoTime() / 1_000_000 >= reportMs) {
                    reportMs += REPORT_MS;
                    System.out.println(System.nanoTime() / 1e9 + " " + bytes + " " + told(consumer.metrics()));
                }
            }
        }
    }

    private static void fromTheBeginning(String bootstrap, String group) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(settings)) {
            ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            AlterConfigOp set = new AlterConfigOp(earliest, AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, Collections.singletonList(set))).all().get();
        }
    }

    /** The longest throttle time that the client was told of. */
    private static double told(Map<MetricName, ? extends Metric> metrics) {
        double most = 0;
        for (Map.Entry<MetricName, ? extends Metric> each : metrics.entrySet()) {
            if (each.getKey().name().endsWith("throttle-time-max") && each.getValue().metricValue() instanceof Double) {
                double value = (Double) each.getValue().metricValue();
                most = Double.isNaN(value) ? most : Math.max(most, value);
            }
        }
        return most;
    }
}

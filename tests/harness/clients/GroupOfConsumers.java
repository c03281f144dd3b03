import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Many Java consumers in one program, each with a thread that polls it. Tasks and events: tasks.py, confluent_group.py. */
public final class GroupOfConsumers {
    private static final long REPORT_MS = 1000;

    private final Map<String, String> task = new HashMap<>();
    private final List<KafkaConsumer<byte[], byte[]>> consumers = new ArrayList<>();
    private AtomicLongArray useful;
    private volatile boolean over;

    public static void main(String[] words) throws Exception {
        GroupOfConsumers group = new GroupOfConsumers();
        for (String word : words) {
            int equals = word.indexOf('=');
            group.task.put(word.substring(0, equals), word.substring(equals + 1));
        }
        group.run();
        System.exit(0);
    }

    private void run() throws Exception {
        int members = Integer.parseInt(task.get("members"));
        useful = new AtomicLongArray(members);
        List<Thread> threads = new ArrayList<>();
        for (int member = 0; member < members; member++) {
            int number = member;
            consumers.add(new KafkaConsumer<>(settings()));
            Thread thread = new Thread(() -> consume(number));
            thread.start();
            threads.add(thread);
        }
        double untilS = nowS() + Double.parseDouble(task.get("duration_s"));
        double heartbeatMs = 0;
        while (nowS() < untilS) {
            Thread.sleep(REPORT_MS);
            heartbeatMs = Math.max(heartbeatMs, sum("heartbeat-response-time-max", true));
            emit("progress", "\"bytes\": " + (long) sum("incoming-byte-total", false) + ", \"useful\": " + useful);
        }
        emit("closing", "\"useful\": " + useful + ", \"disconnects\": " + (long) sum("connection-close-total", false)
            + ", \"timeouts\": 0, \"told_mean_ms\": " + sum("fetch-throttle-time-avg", false) / members
            + ", \"told_most_ms\": " + sum("fetch-throttle-time-max", true)
            + ", \"heartbeat_most_ms\": " + heartbeatMs);
        over = true;
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void consume(int number) {
        KafkaConsumer<byte[], byte[]> consumer = consumers.get(number);
        if (task.get("group").isEmpty()) {
            List<TopicPartition> own = Collections.singletonList(new TopicPartition(task.get("topic"), number));
            consumer.assign(own);
            consumer.seekToBeginning(own);
        } else {
            consumer.subscribe(Collections.singletonList(task.get("topic")), new Assignments(number));
        }
        while (!over) {
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    useful.addAndGet(number, record.value().length);
                }
            } catch (RuntimeException error) {
                emit("trouble", "\"member\": " + number + ", \"text\": \"" + error.toString().replace('"', '\'').replace('\n', ' ') + '"');
            }
        }
        consumer.close();
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", task.get("bootstrap"));
        settings.put("client.id", task.get("client_id"));
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", task.get("fetch_wait_ms"));
        if (!task.get("group").isEmpty()) {
            settings.put("group.id", task.get("group"));
            settings.put("group.protocol", task.get("protocol"));
        } else {
            settings.put("enable.auto.commit", "false");
        }
        return settings;
    }

    /** Over all members and the metrics of that name, per node and per topic ones left out; or the most of them. */
    private double sum(String name, boolean most) {
        double found = 0;
        for (KafkaConsumer<byte[], byte[]> consumer : consumers) {
            for (Map.Entry<MetricName, ? extends Metric> each : consumer.metrics().entrySet()) {
                boolean whole = each.getKey().tags().size() == 1;
                if (whole && each.getKey().name().equals(name) && each.getValue().metricValue() instanceof Double) {
                    double value = (Double) each.getValue().metricValue();
                    value = Double.isNaN(value) ? 0 : value;
                    found = most ? Math.max(found, value) : found + value;
                }
            }
        }
        return found;
    }

    private static final class Assignments implements ConsumerRebalanceListener {
        private final int number;

        Assignments(int number) {
            this.number = number;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            emit("revoked", "\"member\": " + number + ", \"partitions\": " + numbers(partitions));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            emit("assigned", "\"member\": " + number + ", \"partitions\": " + numbers(partitions));
        }

        private static String numbers(Collection<TopicPartition> partitions) {
            TreeSet<Integer> found = new TreeSet<>();
            partitions.forEach(each -> found.add(each.partition()));
            return found.toString();
        }
    }

    /** System.nanoTime is CLOCK_MONOTONIC on Linux, as Python's time.monotonic. */
    private static double nowS() {
        return System.nanoTime() / 1e9;
    }

    private static synchronized void emit(String event, String rest) {
        System.out.println("{\"event\": \"" + event + "\", \"at_s\": " + nowS() + ", " + rest + "}");
        System.out.flush();
    }
}

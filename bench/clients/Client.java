import java.util.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;

/** What the oldest Java client has, 0.11; what is newer is in NewClient. Arguments: bootstrap, scenario, topic, count. */
public final class Client {
    static final long LATEST_MS = 40_000;

    public static void main(String[] words) {
        try {
            String field = words[1].equals("admin") ? "steps" : "records";
            System.out.println("{\"" + field + "\": " + done(words[1], words[0], words[2], Integer.parseInt(words[3])) + "}");
        } catch (Throwable error) {
            System.out.println("{\"error\": \"" + name(error) + "\"}");
        }
        System.exit(0);
    }

    static String name(Throwable error) {
        boolean isWrapper = error instanceof java.util.concurrent.ExecutionException
            || error instanceof java.lang.reflect.InvocationTargetException;
        return isWrapper ? name(error.getCause()) : error.getClass().getSimpleName();
    }

    private static Object done(String scenario, String bootstrap, String topic, int count) throws Exception {
        switch (scenario) {
            case "produce": case "transaction": return produce(scenario, bootstrap, topic, count);
            case "admin": case "share": return Class.forName("NewClient")
                .getMethod(scenario, String.class, String.class, int.class).invoke(null, bootstrap, topic, count);
            default: return consume(scenario, bootstrap, topic, count);
        }
    }

    static Properties settings(String bootstrap, String topic) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", topic);
        for (String part : new String[] {"key", "value"}) {
            settings.put(part + ".serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
            settings.put(part + ".deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        }
        return settings;
    }

    /** One transaction is committed, another aborted. */
    private static int produce(String scenario, String bootstrap, String topic, int count) {
        Properties settings = settings(bootstrap, topic);
        settings.put("acks", "all");
        settings.put("retries", "20");
        if (scenario.equals("transaction")) {
            settings.put("transactional.id", topic);
        }
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            if (scenario.equals("produce")) {
                return send(producer, topic, 0, count);
            }
            producer.initTransactions();
            producer.beginTransaction();
            int committed = send(producer, topic, 0, count);
            producer.commitTransaction();
            producer.beginTransaction();
            send(producer, topic, count, 2 * count);
            producer.abortTransaction();
            return committed;
        }
    }

    private static int send(KafkaProducer<byte[], byte[]> producer, String topic, int first, int end) {
        AtomicInteger acknowledged = new AtomicInteger();
        for (int index = first; index < end; index++) {
            byte[] value = String.format("%01000d", index).getBytes();
            producer.send(new ProducerRecord<>(topic, value), (at, error) -> acknowledged.addAndGet(error == null ? 1 : 0));
        }
        producer.flush();
        return acknowledged.get();
    }

    private static int consume(String scenario, String bootstrap, String topic, int count) throws Exception {
        Properties settings = settings(bootstrap, topic);
        settings.put("group.id", topic);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        if (scenario.equals("group848")) {
            settings.put("group.protocol", "consumer");
        }
        int seen = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            if (scenario.equals("consume")) {
                consumer.assign(Collections.singletonList(new TopicPartition(topic, 0)));
            } else {
                consumer.subscribe(Collections.singletonList(topic));
            }
            long endMs = System.currentTimeMillis() + LATEST_MS;
            while (seen < count && System.currentTimeMillis() < endMs) {
                seen += poll(consumer).count();
            }
            if (!scenario.equals("consume")) {
                consumer.commitSync();
            }
        }
        return seen;
    }

    /** With a long until 3.9, with a Duration since 2.0. */
    private static ConsumerRecords<?, ?> poll(KafkaConsumer<?, ?> consumer) throws Exception {
        try {
            Class<?> duration = java.time.Duration.class;
            return (ConsumerRecords<?, ?>) KafkaConsumer.class.getMethod("poll", duration)
                .invoke(consumer, java.time.Duration.ofSeconds(1));
        } catch (NoSuchMethodException error) {
            return consumer.poll(1000L);
        }
    }
}

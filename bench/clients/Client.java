import java.util.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;

/** What the oldest Java client has, 0.11; what is newer is in NewClient. Arguments: bootstrap, scenario, topic, count. */
public final class Client {
    static final long LATEST_MS = 40_000;

    public static void main(String[] words) throws Exception {
        try {
            System.out.println(said(words));
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

    private static String said(String[] words) throws Exception {
        String topic = words[2];
        int count = Integer.parseInt(words[3]);
        if (words[1].equals("admin")) {
            return "{\"steps\": " + newer("admin", words[0], topic, count) + "}";
        }
        Object records;
        switch (words[1]) {
            case "produce": records = produce(words[0], topic, count); break;
            case "transaction": records = transaction(words[0], topic, count); break;
            case "share": records = newer("share", words[0], topic, count); break;
            default: records = consume(words[0], topic, count, words[1]);
        }
        return "{\"records\": " + records + "}";
    }

    private static Object newer(String method, String bootstrap, String topic, int count) throws Exception {
        Class<?> program = Class.forName("NewClient");
        return program.getMethod(method, String.class, String.class, int.class).invoke(null, bootstrap, topic, count);
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

    static ProducerRecord<byte[], byte[]> record(String topic, int index) {
        return new ProducerRecord<>(topic, String.format("%01000d", index).getBytes());
    }

    private static int produce(String bootstrap, String topic, int count) {
        Properties settings = settings(bootstrap, topic);
        settings.put("acks", "all");
        settings.put("retries", "20");
        AtomicInteger acknowledged = new AtomicInteger();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (int index = 0; index < count; index++) {
                producer.send(record(topic, index), (place, error) -> acknowledged.addAndGet(error == null ? 1 : 0));
            }
            producer.flush();
        }
        return acknowledged.get();
    }

    private static int transaction(String bootstrap, String topic, int count) {
        Properties settings = settings(bootstrap, topic);
        settings.put("transactional.id", topic);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            for (int first : new int[] {0, count}) {
                producer.beginTransaction();
                for (int index = first; index < first + count; index++) {
                    producer.send(record(topic, index));
                }
                producer.flush();
                if (first == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        return count;
    }

    private static int consume(String bootstrap, String topic, int count, String scenario) throws Exception {
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

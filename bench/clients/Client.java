import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;

/** Compiled against the newest version, run with each: a call that a version lacks is a LinkageError there. */
public final class Client {
    private static final long LATEST_MS = 40_000;
    private static String topic;
    private static int count;
    private static final Properties SETTINGS = new Properties();

    public static void main(String[] words) {
        topic = words[2];
        count = Integer.parseInt(words[3]);
        SETTINGS.put("bootstrap.servers", words[0]);
        SETTINGS.put("client.id", topic);
        for (String part : new String[] {"key", "value"}) {
            SETTINGS.put(part + ".serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
            SETTINGS.put(part + ".deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        }
        try {
            System.out.println("{" + done(words[1]) + "}");
        } catch (Throwable error) {
            System.out.println("{\"error\": \"" + name(error) + "\"}");
        }
        System.exit(0);
    }

    private static String name(Throwable error) {
        return error instanceof ExecutionException ? name(error.getCause()) : error.getClass().getSimpleName();
    }

    private static String done(String scenario) throws Exception {
        switch (scenario) {
            case "admin": return "\"steps\": " + admin();
            case "produce": case "transaction": return "\"records\": " + produce(scenario);
            default: return "\"records\": " + (scenario.equals("share") ? share() : consume(scenario));
        }
    }

    /** One transaction is committed, another aborted. */
    private static int produce(String scenario) {
        SETTINGS.put("acks", "all");
        SETTINGS.put("retries", "20");
        if (scenario.equals("transaction")) {
            SETTINGS.put("transactional.id", topic);
        }
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(SETTINGS)) {
            if (scenario.equals("produce")) {
                return send(producer, 0, count);
            }
            producer.initTransactions();
            producer.beginTransaction();
            int committed = send(producer, 0, count);
            producer.commitTransaction();
            producer.beginTransaction();
            send(producer, count, 2 * count);
            producer.abortTransaction();
            return committed;
        }
    }

    private static int send(KafkaProducer<byte[], byte[]> producer, int first, int end) {
        AtomicInteger acknowledged = new AtomicInteger();
        for (int index = first; index < end; index++) {
            byte[] value = String.format("%01000d", index).getBytes();
            producer.send(new ProducerRecord<>(topic, value), (at, error) -> acknowledged.addAndGet(error == null ? 1 : 0));
        }
        producer.flush();
        return acknowledged.get();
    }

    private static int consume(String scenario) throws Exception {
        SETTINGS.put("group.id", topic);
        SETTINGS.put("enable.auto.commit", "false");
        SETTINGS.put("auto.offset.reset", "earliest");
        if (scenario.equals("group848")) {
            SETTINGS.put("group.protocol", "consumer");
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(SETTINGS)) {
            if (scenario.equals("consume")) {
                consumer.assign(Collections.singletonList(new TopicPartition(topic, 0)));
            } else {
                consumer.subscribe(Collections.singletonList(topic));
            }
            int seen = read(() -> poll(consumer).count());
            if (!scenario.equals("consume")) {
                consumer.commitSync();
            }
            return seen;
        }
    }

    private static int read(Callable<Integer> poll) throws Exception {
        int seen = 0;
        for (long endMs = System.currentTimeMillis() + LATEST_MS; seen < count && System.currentTimeMillis() < endMs; ) {
            seen += poll.call();
        }
        return seen;
    }

    /** With a Duration since 2.0, with a long until 3.9. */
    private static ConsumerRecords<?, ?> poll(KafkaConsumer<?, ?> consumer) throws Exception {
        try {
            return consumer.poll(Duration.ofSeconds(1));
        } catch (NoSuchMethodError error) {
            return (ConsumerRecords<?, ?>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 1000L);
        }
    }

    private static int share() throws Exception {
        SETTINGS.put("group.id", topic);
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(SETTINGS)) {
            consumer.subscribe(Collections.singletonList(topic));
            return read(() -> consumer.poll(Duration.ofSeconds(1)).count());
        }
    }

    /** Each step with `ok` or its error, as JSON. */
    private static String admin() {
        Set<String> one = Collections.singleton(topic), made = Collections.singleton(topic + "-made");
        Map<String, Callable<?>> steps = new LinkedHashMap<>();
        StringJoiner said = new StringJoiner(", ", "{", "}");
        try (AdminClient admin = AdminClient.create(SETTINGS)) {
            NewTopic wanted = new NewTopic(topic + "-made", 1, (short) 1);
            steps.put("create_topic", () -> admin.createTopics(Collections.singleton(wanted)).all().get());
            steps.put("list_topics", () -> admin.listTopics().names().get());
            steps.put("describe_topic", () -> admin.describeTopics(one).topicNameValues().get(topic).get());
            steps.put("describe_cluster", () -> admin.describeCluster().nodes().get());
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            steps.put("describe_configs", () -> admin.describeConfigs(Collections.singleton(resource)).all().get());
            steps.put("list_groups", () -> admin.listConsumerGroups().all().get());
            steps.put("describe_group", () -> admin.describeConsumerGroups(one).all().get());
            steps.put("offsets", () -> admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get());
            TopicPartition partition = new TopicPartition(topic, 0);
            steps.put("end_offsets", () -> admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all().get());
            steps.put("delete_group", () -> admin.deleteConsumerGroups(one).all().get());
            steps.put("alter_quotas", () -> admin.alterClientQuotas(Collections.singleton(quota())).all().get());
            steps.put("describe_quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
            steps.put("delete_topic", () -> admin.deleteTopics(made).all().get());
            steps.forEach((step, call) -> {
                try {
                    call.call();
                    said.add("\"" + step + "\": \"ok\"");
                } catch (LinkageError error) {
                    // this version has no such call
                } catch (Exception error) {
                    said.add("\"" + step + "\": \"" + name(error) + "\"");
                }
            });
        }
        return said.toString();
    }

    private static ClientQuotaAlteration quota() {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, topic));
        return new ClientQuotaAlteration(entity, Set.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e9)));
    }
}

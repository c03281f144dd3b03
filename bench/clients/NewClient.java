import java.time.Duration;
import java.util.*;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;

/** What newer Java clients have. */
public final class NewClient {
    public static int share(String bootstrap, String topic, int count) {
        Properties settings = Client.settings(bootstrap, topic);
        settings.put("group.id", topic);
        int seen = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(Collections.singletonList(topic));
            long endMs = System.currentTimeMillis() + Client.LATEST_MS;
            while (seen < count && System.currentTimeMillis() < endMs) {
                seen += consumer.poll(Duration.ofSeconds(1)).count();
            }
        }
        return seen;
    }

    /** Each step with `ok` or its error, as JSON. */
    public static String admin(String bootstrap, String topic, int count) {
        Set<String> one = Collections.singleton(topic);
        String made = topic + "-made";
        Map<String, Callable<?>> steps = new LinkedHashMap<>();
        StringJoiner said = new StringJoiner(", ", "{", "}");
        try (AdminClient admin = AdminClient.create(Client.settings(bootstrap, topic))) {
            NewTopic wanted = new NewTopic(made, 1, (short) 1);
            steps.put("create_topic", () -> admin.createTopics(Collections.singleton(wanted)).all().get());
            steps.put("list_topics", () -> admin.listTopics().names().get());
            steps.put("describe_topic", () -> admin.describeTopics(one).topicNameValues().get(topic).get());
            steps.put("describe_cluster", () -> admin.describeCluster().nodes().get());
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            steps.put("describe_configs", () -> admin.describeConfigs(Collections.singleton(resource)).all().get());
            steps.put("list_groups", () -> admin.listConsumerGroups().all().get());
            steps.put("describe_group", () -> admin.describeConsumerGroups(one).all().get());
            steps.put("offsets", () -> admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get());
            steps.put("end_offsets", () -> endOffsets(admin, topic));
            steps.put("delete_group", () -> admin.deleteConsumerGroups(one).all().get());
            steps.put("alter_quotas", () -> alterQuotas(admin, topic));
            steps.put("describe_quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
            steps.put("delete_topic", () -> admin.deleteTopics(Collections.singleton(made)).all().get());
            for (Map.Entry<String, Callable<?>> step : steps.entrySet()) {
                try {
                    step.getValue().call();
                    said.add("\"" + step.getKey() + "\": \"ok\"");
                } catch (LinkageError error) {
                    // this version has no such call
                } catch (Exception error) {
                    said.add("\"" + step.getKey() + "\": \"" + Client.name(error) + "\"");
                }
            }
        }
        return said.toString();
    }

    private static Object endOffsets(AdminClient admin, String topic) throws Exception {
        Map<TopicPartition, OffsetSpec> wanted = Collections.singletonMap(new TopicPartition(topic, 0), OffsetSpec.latest());
        return admin.listOffsets(wanted).all().get();
    }

    private static Object alterQuotas(AdminClient admin, String topic) throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Collections.singletonMap(ClientQuotaEntity.CLIENT_ID, topic));
        ClientQuotaAlteration.Op rate = new ClientQuotaAlteration.Op("producer_byte_rate", 1e9);
        ClientQuotaAlteration wanted = new ClientQuotaAlteration(entity, Collections.singleton(rate));
        return admin.alterClientQuotas(Collections.singleton(wanted)).all().get();
    }
}

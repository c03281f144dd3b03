import java.util.Map;
import org.apache.kafka.common.serialization.*;
import org.springframework.kafka.core.*;
import org.springframework.kafka.listener.*;

/** Spring for Apache Kafka: a listener whose records a template sends to the copy, until it is stopped. */
public final class Spring {
    public static void main(String[] words) {
        Map<String, Object> reading = Map.of("bootstrap.servers", words[0], "client.id", words[2], "auto.offset.reset", "earliest",
            "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class);
        Map<String, Object> writing = Map.of("bootstrap.servers", words[0], "client.id", words[2],
            "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class);
        KafkaTemplate<byte[], byte[]> template = new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(writing));
        ContainerProperties container = new ContainerProperties(words[2]);
        container.setGroupId(words[2]);
        MessageListener<byte[], byte[]> listener = record -> template.send("copy." + words[2], record.value());
        container.setMessageListener(listener);
        new KafkaMessageListenerContainer<>(new DefaultKafkaConsumerFactory<byte[], byte[]>(reading), container).start();
    }
}

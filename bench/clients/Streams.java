import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** Kafka Streams, exactly once, from the topic to its copy, until it is stopped. */
public final class Streams {
    public static void main(String[] words) {
        Properties settings = new Properties();
        settings.put("application.id", words[2]);
        settings.put("client.id", words[2]);
        settings.put("bootstrap.servers", words[0]);
        settings.put("default.key.serde", Serdes.ByteArraySerde.class.getName());
        settings.put("default.value.serde", Serdes.ByteArraySerde.class.getName());
        settings.put("processing.guarantee", "exactly_once_v2");
        StreamsBuilder builder = new StreamsBuilder();
        // by way of a topic of its own, which it makes
        builder.stream(words[2]).selectKey((key, value) -> value).repartition().to("copy." + words[2]);
        new KafkaStreams(builder.build(), settings).start();
    }
}

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.*;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Flink, exactly once, from the topic to its copy, until it is stopped. */
public final class Flink {
    public static void main(String[] words) throws Exception {
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(words[0]).setTopics(words[2]).setGroupId(words[2]).setClientIdPrefix(words[2])
            .setStartingOffsets(OffsetsInitializer.earliest()).setValueOnlyDeserializer(new SimpleStringSchema()).build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(words[0])
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic("copy." + words[2]).setValueSerializationSchema(new SimpleStringSchema()).build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE).setTransactionalIdPrefix(words[2])
            .setProperty("transaction.timeout.ms", "60000").build();
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1).enableCheckpointing(1000);
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), words[2]).sinkTo(sink);
        environment.execute();
    }
}

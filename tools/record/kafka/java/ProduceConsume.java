import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/** The Java client: produce with each codec, consume in a group, read where nothing is.
 *  ProduceConsume BOOTSTRAP TOPIC GROUP [PROPERTY=VALUE...] */
class ProduceConsume {
    public static void main(String[] args) throws Exception {
        Properties common = new Properties();
        common.put("bootstrap.servers", args[0]);
        for (int i = 3; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            common.put(pair[0], pair[1]);
        }
        String topic = args[1];
        int produced = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            Properties config = with(common, "client.id", "producer-" + codec, "compression.type", codec, "linger.ms", "50");
            try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
                for (int i = 0; i < 20; i++, produced++) {
                    var record = new ProducerRecord<>(topic, "key-" + i, ("record " + i + " ").repeat(4));
                    record.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8));
                    producer.send(record);
                }
            }
        }
        Properties config = with(common, "client.id", "consumer", "group.id", args[2],
            "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            for (int seen = 0; seen < produced; ) {
                seen += consumer.poll(Duration.ofSeconds(1)).count();
            }
            consumer.commitSync();
        }
        config = with(common, "client.id", "out-of-range", "auto.offset.reset", "none");
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            var partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1_000_000);
            consumer.poll(Duration.ofSeconds(10));
            throw new AssertionError("there is an offset 1,000,000");
        } catch (OffsetOutOfRangeException expected) {
            System.out.println(expected.getMessage());
        }
    }

    static Properties with(Properties common, String... pairs) {
        Properties all = new Properties();
        all.putAll(common);
        for (int i = 0; i < pairs.length; i += 2) all.put(pairs[i], pairs[i + 1]);
        return all;
    }
}

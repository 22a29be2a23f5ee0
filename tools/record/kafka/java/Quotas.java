import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.quota.*;

/** Quotas: a producer, a consumer, a chatty client and a maker of topics, each held back.
 *  Quotas BOOTSTRAP TOPIC */
class Quotas {
    public static void main(String[] args) throws Exception {
        Map<String, Object> common = Map.of("bootstrap.servers", args[0],
            "key.serializer", "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer", "org.apache.kafka.common.serialization.StringSerializer",
            "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (Admin admin = Admin.create(with(common, "client.id", "setter"))) {
            admin.alterClientQuotas(List.of(
                quota("producer", "producer_byte_rate", 10_000), quota("consumer", "consumer_byte_rate", 10_000),
                quota("chatty", "request_percentage", 0.02), quota("maker", "controller_mutation_rate", 0.5))).all().get();
        }
        Thread.sleep(1000);
        try (var producer = new KafkaProducer<String, String>(with(common, "client.id", "producer", "linger.ms", "20"))) {
            for (int i = 0; i < 60; i++) {
                producer.send(new ProducerRecord<>(args[1], "key-" + i, "x".repeat(1000)));
                Thread.sleep(30);
            }
        }
        try (var consumer = new KafkaConsumer<String, String>(with(common, "client.id", "consumer", "max.partition.fetch.bytes", "12000"))) {
            consumer.assign(List.of(new TopicPartition(args[1], 0)));
            consumer.seekToBeginning(consumer.assignment());
            for (int seen = 0; seen < 60; ) seen += consumer.poll(Duration.ofMillis(500)).count();
        }
        try (Admin admin = Admin.create(with(common, "client.id", "chatty"))) {
            for (int i = 0; i < 20; i++) admin.listTopics().names().get();
        }
        try (Admin admin = Admin.create(with(common, "client.id", "maker"))) {
            var retry = new CreateTopicsOptions().retryOnQuotaViolation(false);
            for (int i = 0; i < 4; i++) {
                try {
                    admin.createTopics(List.of(new NewTopic("made-" + i, 10, (short) 1)), retry).all().get();
                } catch (Exception expected) {
                    System.out.println(expected.getMessage());
                }
            }
        }
    }

    static ClientQuotaAlteration quota(String client, String name, double value) {
        var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, client));
        return new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op(name, value)));
    }

    static Map<String, Object> with(Map<String, Object> common, String... pairs) {
        var all = new HashMap<String, Object>(common);
        for (int i = 0; i < pairs.length; i += 2) all.put(pairs[i], pairs[i + 1]);
        return all;
    }
}

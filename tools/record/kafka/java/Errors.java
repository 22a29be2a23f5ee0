import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.resource.*;

/** Errors that clients meet, each printed.  Errors BOOTSTRAP STEP; the cluster has brokers 1 and 2. */
class Errors {
    static Map<String, Object> common;

    interface Call { Object get() throws Exception; }

    public static void main(String[] args) throws Exception {
        common = Map.of("bootstrap.servers", args[0], "client.id", args[1],
            "key.serializer", "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer", "org.apache.kafka.common.serialization.StringSerializer",
            "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (Admin admin = Admin.create(common)) {
            switch (args[1]) {
                case "requests" -> requests(admin);
                case "denied" -> denied(admin);
                case "moved" -> moved(admin);
                case "alone" -> send("pair", "x", "delivery.timeout.ms", "1500", "request.timeout.ms", "1000");
                default -> throw new AssertionError(args[1]);
            }
        }
    }

    static void requests(Admin admin) throws Exception {
        admin.createTopics(List.of(new NewTopic("small", 1, (short) 1).configs(Map.of("max.message.bytes", "1000")),
            new NewTopic("pair", 1, (short) 2).configs(Map.of("min.insync.replicas", "2")),
            new NewTopic("movable", Map.of(0, List.of(1))), new NewTopic("secret", 1, (short) 1))).all().get();
        Thread.sleep(1000);
        attempt(() -> admin.describeTopics(List.of("no-such-topic")).allTopicNames().get());
        attempt(() -> admin.createTopics(List.of(new NewTopic("small", 1, (short) 1), new NewTopic("not/legal", 1, (short) 1),
            new NewTopic("many", 1, (short) 5), new NewTopic("none", 0, (short) 1))).all().get());
        attempt(() -> admin.deleteTopics(List.of("no-such-topic")).all().get());
        attempt(() -> admin.createPartitions(Map.of("small", NewPartitions.increaseTo(1))).all().get());
        attempt(() -> admin.describeConsumerGroups(List.of("no-such-group")).all().get());
        attempt(() -> admin.deleteConsumerGroups(List.of("no-such-group")).all().get());
        attempt(() -> admin.deleteRecords(Map.of(new TopicPartition("small", 0), RecordsToDelete.beforeOffset(99))).all().get());
        send("small", "x".repeat(5000));
        try (var consumer = new KafkaConsumer<String, String>(with("auto.offset.reset", "none"))) {
            consumer.assign(List.of(new TopicPartition("small", 0)));
            consumer.seek(new TopicPartition("small", 0), 99);
            attempt(() -> consumer.poll(Duration.ofSeconds(10)));
        }
    }

    static void denied(Admin admin) throws Exception {
        var everyone = new AccessControlEntry("User:*", "*", AclOperation.ALL, AclPermissionType.DENY);
        admin.createAcls(List.of(
            new AclBinding(new ResourcePattern(ResourceType.TOPIC, "secret", PatternType.LITERAL), everyone),
            new AclBinding(new ResourcePattern(ResourceType.GROUP, "closed", PatternType.LITERAL), everyone),
            new AclBinding(new ResourcePattern(ResourceType.TRANSACTIONAL_ID, "closed", PatternType.LITERAL), everyone))).all().get();
        Thread.sleep(1000);
        send("secret", "x");
        attempt(() -> admin.describeTopics(List.of("secret")).allTopicNames().get());
        attempt(() -> admin.deleteTopics(List.of("secret")).all().get());
        for (String[] way : new String[][] {{"secret", "open"}, {"small", "closed"}}) {
            for (String protocol : List.of("classic", "consumer")) {
                try (var consumer = new KafkaConsumer<String, String>(with("group.id", way[1], "group.protocol", protocol))) {
                    consumer.subscribe(List.of(way[0]));
                    attempt(() -> {
                        for (int i = 0; i < 5; i++) consumer.poll(Duration.ofMillis(500));
                        return "nothing";
                    });
                }
            }
        }
        try (var producer = new KafkaProducer<String, String>(with("transactional.id", "closed"))) {
            attempt(() -> { producer.initTransactions(); return null; });
        }
    }

    /** The producer learns where the partition is, then the partition goes elsewhere. */
    static void moved(Admin admin) throws Exception {
        var partition = new TopicPartition("movable", 0);
        try (var producer = new KafkaProducer<String, String>(common); var consumer = new KafkaConsumer<String, String>(common)) {
            producer.send(new ProducerRecord<>("movable", "before")).get();
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            consumer.poll(Duration.ofSeconds(5));
            admin.alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(2))))).all().get();
            while (!admin.listPartitionReassignments().reassignments().get().isEmpty()) Thread.sleep(200);
            Thread.sleep(1000);
            producer.send(new ProducerRecord<>("movable", "after")).get(20, TimeUnit.SECONDS);
            for (int i = 0; i < 5; i++) consumer.poll(Duration.ofMillis(500));
        }
    }

    static void send(String topic, String value, String... pairs) {
        try (var producer = new KafkaProducer<String, String>(with(pairs))) {
            attempt(() -> producer.send(new ProducerRecord<>(topic, value)).get(10, TimeUnit.SECONDS));
        }
    }

    static void attempt(Call call) {
        try {
            System.out.println("no error: " + call.get());
        } catch (Exception expected) {
            System.out.println(expected);
        }
    }

    static Map<String, Object> with(String... pairs) {
        var all = new HashMap<String, Object>(common);
        for (int i = 0; i < pairs.length; i += 2) all.put(pairs[i], pairs[i + 1]);
        return all;
    }
}

import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Transactions: one commits with offsets, one aborts, one is fenced, one waits for its time to be up.
 *  Transactions BOOTSTRAP TOPIC */
class Transactions {
    static String bootstrap, topic;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        topic = args[1];
        try (var producer = producer("copier", "60000"); var consumer = consumer("uncommitted", "read_uncommitted")) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, "committed", 10);
            producer.commitTransaction();

            consumer.subscribe(List.of(topic));
            while (consumer.poll(Duration.ofMillis(300)).isEmpty()) { }
            producer.beginTransaction();
            send(producer, "copied", 10);
            producer.sendOffsetsToTransaction(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(5)), consumer.groupMetadata());
            producer.commitTransaction();

            producer.beginTransaction();
            send(producer, "aborted", 10);
            producer.flush();
            producer.abortTransaction();
        }
        var fenced = producer("same", "60000");
        fenced.initTransactions();
        fenced.beginTransaction();
        send(fenced, "fenced", 5);
        fenced.flush();
        try (var winner = producer("same", "60000")) {
            winner.initTransactions();
            winner.beginTransaction();
            send(winner, "winner", 5);
            winner.commitTransaction();
            try {
                send(fenced, "too late", 1);
                fenced.commitTransaction();
                throw new AssertionError("not fenced");
            } catch (KafkaException expected) {
                System.out.println(expected);
            }
        }
        fenced.close(Duration.ofSeconds(1));
        var slow = producer("slow", "1000");
        slow.initTransactions();
        slow.beginTransaction();
        send(slow, "out of time", 5);
        slow.flush();
        Thread.sleep(4000);
        try {
            slow.commitTransaction();
            throw new AssertionError("in time");
        } catch (KafkaException expected) {
            System.out.println(expected);
        }
        slow.close(Duration.ofSeconds(1));
        try (var consumer = consumer("committed", "read_committed")) {
            consumer.subscribe(List.of(topic));
            int seen = 0;
            for (int i = 0; i < 12; i++) seen += consumer.poll(Duration.ofMillis(300)).count();
            System.out.println("read " + seen);
            if (seen != 25) throw new AssertionError("committed records: " + seen);
        }
    }

    static void send(KafkaProducer<String, String> producer, String what, int count) {
        for (int i = 0; i < count; i++) producer.send(new ProducerRecord<>(topic, "key-" + i, what + " " + i));
    }

    static KafkaProducer<String, String> producer(String id, String timeout) {
        return new KafkaProducer<>(config("client.id", id, "transactional.id", id, "transaction.timeout.ms", timeout,
            "key.serializer", "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer", "org.apache.kafka.common.serialization.StringSerializer"));
    }

    static KafkaConsumer<String, String> consumer(String id, String isolation) {
        return new KafkaConsumer<>(config("client.id", id, "group.id", id, "isolation.level", isolation, "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"));
    }

    static Map<String, Object> config(String... pairs) {
        var all = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap));
        for (int i = 0; i < pairs.length; i += 2) all.put(pairs[i], pairs[i + 1]);
        return all;
    }
}

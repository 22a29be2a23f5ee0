import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Transactions with the methods of kafka-clients 0.11 to 3: one commits with offsets, one aborts, one is fenced.
 *  OldTransactions BOOTSTRAP TOPIC */
class OldTransactions {
    public static void main(String[] args) throws Exception {
        KafkaProducer<String, String> producer = producer(args[0]), winner = producer(args[0]);
        producer.initTransactions();
        producer.beginTransaction();
        send(producer, args[1], "committed");
        TopicPartition partition = new TopicPartition(args[1], 0);
        producer.sendOffsetsToTransaction(Collections.singletonMap(partition, new OffsetAndMetadata(5)), "copiers");
        producer.commitTransaction();
        producer.beginTransaction();
        send(producer, args[1], "aborted");
        producer.flush();
        producer.abortTransaction();
        winner.initTransactions();
        try {
            producer.beginTransaction();
            send(producer, args[1], "fenced");
            producer.commitTransaction();
            throw new AssertionError("not fenced");
        } catch (KafkaException expected) {
            System.out.println(expected);
        }
        winner.close();
    }

    static void send(KafkaProducer<String, String> producer, String topic, String text) {
        for (int i = 0; i < 5; i++) producer.send(new ProducerRecord<>(topic, "key-" + i, text + " " + i));
    }

    static KafkaProducer<String, String> producer(String bootstrap) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("client.id", "copier");
        config.put("transactional.id", "copier");
        config.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return new KafkaProducer<>(config);
    }
}

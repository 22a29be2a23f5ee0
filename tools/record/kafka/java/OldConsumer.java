import java.util.*;
import org.apache.kafka.clients.consumer.*;

/** A consumer in the words that kafka-clients had from 0.9 to 3: a group of one, all records, a commit.
 *  OldConsumer BOOTSTRAP TOPIC GROUP RECORDS */
class OldConsumer {
    @SuppressWarnings("deprecation")
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("client.id", "consumer");
        config.put("group.id", args[2]);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("max.partition.fetch.bytes", "4096");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config);
        consumer.subscribe(Arrays.asList(args[1]));
        int seen = 0;
        for (long end = System.currentTimeMillis() + 30_000; seen < Integer.parseInt(args[3]); ) {
            if (System.currentTimeMillis() > end) throw new AssertionError("only " + seen);
            seen += consumer.poll(500).count();
        }
        consumer.commitSync();
        consumer.close();
    }
}

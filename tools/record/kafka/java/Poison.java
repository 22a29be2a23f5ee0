import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;

/** A member of a share group (KIP-932) that cannot process some records, and releases them.
 *  Poison BOOTSTRAP TOPIC GROUP SECONDS CLIENT-ID; it prints the offset and the delivery of each released record. */
class Poison {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[2]);
        config.put("client.id", args[4]);
        config.put("share.acknowledgement.mode", "explicit");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        long end = System.currentTimeMillis() + 1000 * Long.parseLong(args[3]);
        try (var consumer = new KafkaShareConsumer<String, String>(config)) {
            consumer.subscribe(List.of(args[1]));
            while (System.currentTimeMillis() < end) {
                for (var record : consumer.poll(Duration.ofMillis(300))) {
                    boolean released = record.offset() % 10 == 3;
                    if (released) System.out.println("released " + record.offset() + " " + record.deliveryCount().orElse((short) 0));
                    consumer.acknowledge(record, released ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                }
                consumer.commitSync();
            }
        }
    }
}

import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;

/** One member of a share group (KIP-932): accepts, releases and rejects what it reads.
 *  ShareMember BOOTSTRAP TOPIC GROUP SECONDS CLIENT-ID */
class ShareMember {
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
            int seen = 0;
            while (System.currentTimeMillis() < end) {
                for (var record : consumer.poll(Duration.ofMillis(300))) {
                    var what = switch (seen++ % 5) {
                        case 3 -> record.deliveryCount().orElse((short) 1) < 2 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
                        case 4 -> AcknowledgeType.REJECT;
                        default -> AcknowledgeType.ACCEPT;
                    };
                    consumer.acknowledge(record, what);
                }
                consumer.commitSync();
            }
            System.out.println("read " + seen);
        }
    }
}

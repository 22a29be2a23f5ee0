import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;

/** An application that starts its consumer again after each exception.
 *  NoOffset BOOTSTRAP TOPIC GROUP STARTS [PROPERTY=VALUE...] */
class NoOffset {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[2]);
        config.put("auto.offset.reset", "none");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        for (String pair : Arrays.asList(args).subList(4, args.length)) {
            config.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        for (int start = 0; start < Integer.parseInt(args[3]); start++) {
            try (var consumer = new KafkaConsumer<String, String>(config)) {
                consumer.subscribe(List.of(args[1]));
                while (true) consumer.poll(Duration.ofMillis(300));
            } catch (NoOffsetForPartitionException error) {
                System.out.println(error);
            }
            Thread.sleep(300);
        }
    }
}

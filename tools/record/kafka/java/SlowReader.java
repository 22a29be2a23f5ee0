import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;

/** A consumer that polls without a timeout, and works between polls.
 *  SlowReader BOOTSTRAP TOPIC RECORDS MS [PROPERTY=VALUE...] */
class SlowReader {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("client.id", "slow-reader");
        config.put("group.id", "slow-readers");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        for (String pair : Arrays.asList(args).subList(4, args.length)) {
            config.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        try (var consumer = new KafkaConsumer<String, String>(config)) {
            consumer.subscribe(List.of(args[1]));
            for (int left = Integer.parseInt(args[2]); left > 0; ) {
                left -= consumer.poll(Duration.ZERO).count();
                Thread.sleep(Long.parseLong(args[3]));
            }
        }
    }
}

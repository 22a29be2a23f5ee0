import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;

/** One member of a group: reads for a while, commits after each poll, leaves.
 *  Member BOOTSTRAP TOPIC GROUP SECONDS [work=MS] [PROPERTY=VALUE...]; it works after each poll with records. */
class Member {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[2]);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        for (String pair : Arrays.asList(args).subList(4, args.length)) {
            config.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        var work = config.remove("work");
        long end = System.currentTimeMillis() + 1000 * Long.parseLong(args[3]);
        try (var consumer = new KafkaConsumer<String, String>(config)) {
            consumer.subscribe(List.of(args[1]));
            while (System.currentTimeMillis() < end) {
                int count = consumer.poll(Duration.ofMillis(300)).count();
                if (count == 0) continue;
                System.out.println("read " + count);
                if (work != null) Thread.sleep(Long.parseLong((String) work));
                try {
                    consumer.commitSync();
                } catch (CommitFailedException rebalanced) {
                    System.out.println(rebalanced.getMessage());
                }
            }
        }
    }
}

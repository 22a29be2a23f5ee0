import java.util.*;
import org.apache.kafka.clients.producer.*;

/** A producer in the words that kafka-clients has had since 0.8.2: each codec, with acks 0, 1 and all.
 *  OldProducer BOOTSTRAP TOPIC CODEC... */
class OldProducer {
    public static void main(String[] args) throws Exception {
        for (String codec : Arrays.asList(args).subList(2, args.length)) {
            for (String acks : new String[] {"0", "1", "all"}) {
                Properties config = new Properties();
                config.put("bootstrap.servers", args[0]);
                config.put("client.id", "producer-" + codec + "-" + acks);
                config.put("compression.type", codec);
                config.put("acks", acks);
                config.put("linger.ms", "30");
                config.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
                config.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
                KafkaProducer<String, String> producer = new KafkaProducer<>(config);
                var last = producer.send(new ProducerRecord<>(args[1], null, "no key"));
                for (int i = 0; i < 10; i++) {
                    last = producer.send(new ProducerRecord<>(args[1], "key-" + i, ("record " + i + " ").repeat(4)));
                }
                last.get();
                producer.close();
            }
        }
    }
}

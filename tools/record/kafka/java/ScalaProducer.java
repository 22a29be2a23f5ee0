import java.util.*;
import kafka.javaapi.producer.Producer;
import kafka.producer.*;

/** The producer in Scala, of 0.8 to 0.11: each codec, with acks 0, 1 and all.
 *  ScalaProducer BOOTSTRAP TOPIC CODEC... */
class ScalaProducer {
    public static void main(String[] args) throws Exception {
        for (String codec : Arrays.asList(args).subList(2, args.length)) {
            for (String acks : new String[] {"0", "1", "-1"}) {
                Properties config = new Properties();
                config.put("metadata.broker.list", args[0]);
                config.put("client.id", "scala-producer-" + codec + "-" + acks);
                config.put("compression.codec", codec);
                config.put("request.required.acks", acks);
                config.put("serializer.class", "kafka.serializer.StringEncoder");
                Producer<String, String> producer = new Producer<>(new ProducerConfig(config));
                List<KeyedMessage<String, String>> messages = new ArrayList<>();
                messages.add(new KeyedMessage<>(args[1], "no key"));
                for (int i = 0; i < 10; i++) {
                    messages.add(new KeyedMessage<>(args[1], "key-" + i, ("record " + i + " ").repeat(4)));
                }
                producer.send(messages);
                producer.close();
            }
        }
    }
}

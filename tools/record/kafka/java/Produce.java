import java.util.*;
import org.apache.kafka.clients.producer.*;

/** Produce records of a size.  Produce BOOTSTRAP TOPIC RECORDS BYTES [pause=MS] [PROPERTY=VALUE...] */
class Produce {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("client.id", "producer");
        config.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        for (String pair : Arrays.asList(args).subList(4, args.length)) {
            config.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        int size = Integer.parseInt(args[3]);
        var pause = config.remove("pause");
        try (var producer = new KafkaProducer<String, String>(config)) {
            for (int i = 0; i < Integer.parseInt(args[2]); i++) {
                String value = ("record " + i + " ").repeat(size / 8 + 1).substring(0, size);
                producer.send(new ProducerRecord<>(args[1], "key-" + i, value), (metadata, error) -> {
                    if (error != null) System.out.println(error);
                });
                if (pause != null) Thread.sleep(Long.parseLong((String) pause));
            }
        }
    }
}

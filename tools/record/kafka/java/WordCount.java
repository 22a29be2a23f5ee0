import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

/** A streams application in a streams group (KIP-1071): counts the words of a topic, by a repartition.
 *  WordCount BOOTSTRAP TOPIC APPLICATION SECONDS STATE-FOLDER [PROPERTY=VALUE...] */
class WordCount {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("application.id", args[2]);
        config.put("state.dir", args[4]);
        config.put("client.id", args[4].substring(args[4].lastIndexOf('/') + 1));
        config.put("group.protocol", "streams");
        config.put("auto.offset.reset", "earliest");
        config.put("num.stream.threads", "1");
        config.put("commit.interval.ms", "1000");
        config.put("default.key.serde", Serdes.StringSerde.class.getName());
        config.put("default.value.serde", Serdes.StringSerde.class.getName());
        for (String pair : Arrays.asList(args).subList(5, args.length)) {
            config.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        var builder = new StreamsBuilder();
        builder.<String, String>stream(args[1])
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("counts"))
            .toStream().mapValues(String::valueOf).to("counted");
        try (var streams = new KafkaStreams(builder.build(), config)) {
            streams.start();
            Thread.sleep(1000 * Long.parseLong(args[3]));
        }
    }
}

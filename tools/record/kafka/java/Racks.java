import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;

/** A consumer that prints from which replica it reads each partition, -1: from the leader, and its totals.
 *  Racks BOOTSTRAP TOPIC SECONDS [PROPERTY=VALUE...] */
class Racks {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        for (String pair : Arrays.asList(args).subList(3, args.length)) {
            config.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        try (var consumer = new KafkaConsumer<String, String>(config)) {
            consumer.subscribe(List.of(args[1]));
            for (long end = System.nanoTime() + Integer.parseInt(args[2]) * 1_000_000_000L; System.nanoTime() < end; ) {
                consumer.poll(Duration.ofMillis(100));
            }
            var values = new TreeMap<String, String>();
            for (var metric : consumer.metrics().values()) {
                var name = metric.metricName();
                if (name.name().equals("preferred-read-replica")) {
                    values.put(name.tags().get("topic") + "-" + name.tags().get("partition"), metric.metricValue().toString());
                } else if (Set.of("bytes-consumed-total", "records-consumed-total").contains(name.name()) && name.tags().size() == 1) {
                    values.put(name.name(), metric.metricValue().toString());
                }
            }
            var pairs = new StringJoiner(", ", "{", "}");
            values.forEach((name, value) -> pairs.add("\"" + name + "\": \"" + value + "\""));
            System.out.printf("{\"source\": \"client\", \"time\": %d, \"client_id\": \"%s\", \"event\": \"measured\", \"metrics\": %s}%n",
                System.currentTimeMillis() * 1_000_000, config.get("client.id"), pairs);
        }
    }
}

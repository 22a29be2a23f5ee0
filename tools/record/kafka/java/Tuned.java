import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.AbstractConfig;

/** Clients with configurations of their own, each of which prints its configuration and its metrics.
 *  Tuned BOOTSTRAP.  Topics: orders:2, metrics:1, bulk:1. */
class Tuned {
    static final List<String> SETTINGS = List.of("acks", "linger.ms", "batch.size", "compression.type", "enable.idempotence",
        "connections.max.idle.ms", "fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes",
        "isolation.level", "client.rack", "group.id", "group.instance.id", "group.protocol", "partition.assignment.strategy",
        "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "security.protocol");
    static final Set<String> METRICS = Set.of("fetch-total", "bytes-consumed-total", "records-consumed-total", "fetch-size-avg",
        "fetch-latency-avg", "connection-creation-total", "record-send-total", "batch-size-avg", "batch-size-max", "request-total");
    static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        produce("bulk", 300, 1000, 0, "client.id", "bulk-writer", "linger.ms", "20", "compression.type", "none");
        var all = Executors.newCachedThreadPool();
        var running = List.of(
            all.submit(() -> produce("orders", 200, 100, 10, "client.id", "orders-writer", "acks", "all", "linger.ms", "200",
                "batch.size", "2000", "compression.type", "gzip")),
            all.submit(() -> produce("metrics", 80, 40, 50, "client.id", "metrics-writer", "acks", "1", "linger.ms", "0",
                "enable.idempotence", "false")),
            all.submit(() -> produce("metrics", 4, 40, 1500, "client.id", "sleepy-writer", "acks", "0", "enable.idempotence", "false",
                "connections.max.idle.ms", "500")),
            all.submit(() -> consume("orders", 4, 20, "client.id", "busy-reader", "group.id", "busy", "fetch.min.bytes", "0",
                "session.timeout.ms", "7000", "heartbeat.interval.ms", "500", "max.poll.interval.ms", "30000")),
            all.submit(() -> consume("metrics", 4, 0, "client.id", "tiny-reader", "group.id", "tiny", "group.protocol", "consumer",
                "max.poll.interval.ms", "45000")),
            all.submit(() -> consume("metrics", 5, 0, "client.id", "patient-reader", "group.id", "patient", "fetch.min.bytes", "4000",
                "fetch.max.wait.ms", "900", "isolation.level", "read_committed", "client.rack", "rack-a", "group.instance.id", "patient-1",
                "partition.assignment.strategy", CooperativeStickyAssignor.class.getName())),
            all.submit(() -> consume("bulk", 4, 0, "client.id", "narrow-reader", "group.id", "narrow", "max.partition.fetch.bytes", "18000",
                "fetch.max.bytes", "1000000")));
        for (var each : running) each.get();
        all.shutdown();
    }

    static Void produce(String topic, int count, int size, long pause, String... pairs) throws Exception {
        var given = config(pairs);
        configured(new ProducerConfig(given), given);
        try (var producer = new KafkaProducer<String, String>(given)) {
            producer.partitionsFor(topic);
            for (int i = 0; i < count; i++) {
                String value = ("record " + i + " ").repeat(size / 8 + 1).substring(0, size);
                producer.send(new ProducerRecord<>(topic, "key-" + i, value));
                if (pause > 0) Thread.sleep(pause);
            }
            producer.flush();
            measured(given, producer.metrics());
        }
        return null;
    }

    static Void consume(String topic, long seconds, long pause, String... pairs) throws Exception {
        var given = config(pairs);
        given.put("auto.offset.reset", "earliest");
        given.put("enable.auto.commit", "false");
        configured(new ConsumerConfig(given), given);
        try (var consumer = new KafkaConsumer<String, String>(given)) {
            consumer.subscribe(List.of(topic));
            for (long end = System.nanoTime() + seconds * 1_000_000_000L; System.nanoTime() < end; Thread.sleep(pause)) {
                consumer.poll(Duration.ofMillis(pause > 0 ? 0 : 100));
            }
            measured(given, consumer.metrics());
        }
        return null;
    }

    static Map<String, Object> config(String... pairs) {
        var all = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap));
        for (String each : List.of("key", "value")) {
            all.put(each + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            all.put(each + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        for (int i = 0; i < pairs.length; i += 2) all.put(pairs[i], pairs[i + 1]);
        return all;
    }

    static void configured(AbstractConfig config, Map<String, Object> given) {
        var values = new TreeMap<String, String>();
        for (String name : SETTINGS) {
            if (config.values().get(name) != null) values.put(name, config.values().get(name).toString());
        }
        print(given, "configured", "settings", values);
    }

    static void measured(Map<String, Object> given, Map<MetricName, ? extends Metric> metrics) {
        var values = new TreeMap<String, String>();
        for (var metric : metrics.values()) {
            var name = metric.metricName();
            if (METRICS.contains(name.name()) && name.tags().keySet().equals(Set.of("client-id"))) {
                values.put(name.name(), metric.metricValue().toString());
            }
        }
        print(given, "measured", "metrics", values);
    }

    static synchronized void print(Map<String, Object> given, String event, String kind, Map<String, String> values) {
        var pairs = new StringJoiner(", ", "{", "}");
        values.forEach((name, value) -> pairs.add("\"" + name + "\": \"" + value.replace("\"", "") + "\""));
        System.out.printf("{\"source\": \"client\", \"time\": %d, \"client_id\": \"%s\", \"event\": \"%s\", \"%s\": %s}%n",
            System.currentTimeMillis() * 1_000_000, given.get("client.id"), event, kind, pairs);
    }
}

import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;

/** Clients that may be too new for their broker: a record, and 3 s in a group. Prints what they got.
 *  Newer BOOTSTRAP TOPIC */
class Newer {
    @SuppressWarnings("deprecation")
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("reconnect.backoff.ms", "500");
        config.put("retry.backoff.ms", "500");
        config.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        config.put("client.id", "newer-producer");
        config.put("retries", "0");
        config.put("max.block.ms", "2000");
        config.put("metadata.fetch.timeout.ms", "2000");
        KafkaProducer<String, String> producer = new KafkaProducer<>(config);
        try {
            System.out.println(producer.send(new ProducerRecord<>(args[1], "key", "newer")).get(3, TimeUnit.SECONDS));
        } catch (Exception refused) {
            System.out.println(refused);
        }
        config.keySet().removeAll(List.of("retries", "max.block.ms", "metadata.fetch.timeout.ms"));
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("client.id", "newer-consumer");
        config.put("group.id", "newer");
        config.put("auto.offset.reset", "earliest");
        config.put("max.poll.records", "1000");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config);
        consumer.subscribe(List.of(args[1]));
        new Timer(true).schedule(new TimerTask() {
            @Override public void run() { consumer.wakeup(); }
        }, 3000);
        int seen = 0;
        try {
            while (true) seen += poll(consumer).count();
        } catch (Exception refused) {
            Throwable cause = refused.getCause();
            System.out.println(seen + " records, then " + (cause == null ? refused : cause));
        }
        System.exit(0);
    }

    /** poll(Duration), or poll(long) before 2.0 (KIP-266). */
    static ConsumerRecords<?, ?> poll(KafkaConsumer<?, ?> consumer) throws ReflectiveOperationException {
        try {
            return (ConsumerRecords<?, ?>) KafkaConsumer.class.getMethod("poll", Duration.class)
                .invoke(consumer, Duration.ofMillis(500));
        } catch (NoSuchMethodException old) {
            return (ConsumerRecords<?, ?>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 500L);
        }
    }
}

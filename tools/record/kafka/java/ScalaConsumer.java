import java.util.*;
import kafka.consumer.*;
import kafka.javaapi.consumer.ConsumerConnector;

/** The consumer in Scala, of 0.8 to 1.1: a group of one in ZooKeeper, all records, a commit of their offsets.
 *  ScalaConsumer BOOTSTRAP TOPIC GROUP zookeeper|kafka RECORDS */
class ScalaConsumer {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("zookeeper.connect", "127.0.0.1:2181");
        config.put("group.id", args[2]);
        config.put("client.id", "scala-" + args[2]);
        config.put("consumer.id", "member");
        config.put("offsets.storage", args[3]);
        config.put("dual.commit.enabled", "false");
        config.put("auto.offset.reset", "smallest");
        config.put("auto.commit.enable", "false");
        config.put("fetch.message.max.bytes", "1500");
        config.put("consumer.timeout.ms", "10000");
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(config));
        var streams = connector.createMessageStreams(Collections.singletonMap(args[1], 1));
        ConsumerIterator<byte[], byte[]> records = streams.get(args[1]).get(0).iterator();
        for (int i = 0; i < Integer.parseInt(args[4]); i++) records.next();
        connector.commitOffsets();
        connector.shutdown();
    }
}

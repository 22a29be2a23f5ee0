import java.util.*;
import kafka.api.*;
import kafka.common.*;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;

/** The requests that a client in Scala can send itself: the offsets of a group in ZooKeeper, offsets by time, fetches that
 *  are smaller than a message or out of range.  SimpleClient BOOTSTRAP TOPIC */
class SimpleClient {
    public static void main(String[] args) throws Exception {
        String[] address = args[0].split(",")[0].split(":");
        String topic = args[1], group = "simple";
        TopicAndPartition partition = new TopicAndPartition(topic, 0);
        SimpleConsumer client = new SimpleConsumer(address[0], Integer.parseInt(address[1]), 10_000, 65_536, group);
        client.send(new TopicMetadataRequest(List.of(topic, "absent")));
        var leader = client.send(new TopicMetadataRequest(List.of(topic))).topicsMetadata().get(0)
            .partitionsMetadata().get(0).leader();
        SimpleConsumer reader = new SimpleConsumer(leader.host(), leader.port(), 10_000, 65_536, group);
        for (long time : new long[] {-2, -1, System.currentTimeMillis()}) {
            reader.getOffsetsBefore(new kafka.javaapi.OffsetRequest(
                Map.of(partition, new PartitionOffsetRequestInfo(time, 3)), (short) 0, group));
        }
        for (int bytes : new int[] {20, 300, 100_000}) {
            reader.fetch(new FetchRequestBuilder().clientId(group).addFetch(topic, 0, 0, bytes).build());
        }
        reader.fetch(new FetchRequestBuilder().clientId(group).addFetch(topic, 0, 1_000_000, 100).build());
        reader.close();
        client.send(new TopicMetadataRequest(List.of(topic)));
        var offset = Map.of(partition, new OffsetAndMetadata(7, "seven", System.currentTimeMillis()));
        client.commitOffsets(new kafka.javaapi.OffsetCommitRequest(group, offset, 1, group, (short) 0));
        client.fetchOffsets(new kafka.javaapi.OffsetFetchRequest(group, List.of(partition), (short) 0, 2, group));
        client.close();
    }
}

import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.assignment.*;
import org.apache.kafka.streams.state.HostInfo;

/** What Streams puts into a consumer protocol, in every version, as JSON lines of name and value. */
class Streams {
    public static void main(String[] args) {
        var process = new ProcessId(new UUID(1, 2));
        for (int version = 1; version <= 11; version++) {
            var sums = new TreeMap<>(Map.of(new TaskId(0, 1), 9L));
            var info = new SubscriptionInfo(version, 11, process, "host:80", sums, (byte) 3, 0, Map.of("zone", "z1"));
            print("streams-subscription-" + version, info.encode());
            var partitions = Set.of(new TopicPartition("a", 1));
            var hosts = Map.of(new HostInfo("h", 80), partitions);
            var assignment = new AssignmentInfo(version, 11, List.of(new TaskId(0, 1)), Map.of(new TaskId(2, 3), partitions),
                hosts, Map.of(new HostInfo("s", 81), partitions), 0);
            if (version >= 7) assignment.setNextRebalanceTime(77);
            print("streams-assignment-" + version, assignment.encode());
        }
        var named = new AssignmentInfo(10, 11, List.of(new TaskId(0, 1, "topo")), Map.of(), Map.of(), Map.of(), 1);
        print("streams-assignment-named", named.encode());
    }

    static void print(String name, ByteBuffer value) {
        byte[] bytes = new byte[value.remaining()];
        value.duplicate().get(bytes);
        System.out.println("{\"name\":\"" + name + "\",\"key\":null,\"value\":\"" + HexFormat.of().formatHex(bytes) + "\"}");
    }
}

import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.connect.runtime.distributed.*;
import org.apache.kafka.connect.util.ConnectorTaskId;

/** What Connect's workers tell each other, by its own serializers, as JSON lines of name and value. */
class Connect {
    public static void main(String[] args) {
        var tasks = List.of(new ConnectorTaskId("sink", 0), new ConnectorTaskId("sink", 1));
        print("connect-subscription-0", ConnectProtocol.serializeMetadata(new ConnectProtocol.WorkerState("http://w:8083", 7)));
        print("connect-assignment-0", ConnectProtocol.serializeAssignment(
            new ConnectProtocol.Assignment((short) 0, "leader", "http://l:8083", 7, List.of("sink"), tasks)));
        for (boolean sessioned : new boolean[] {false, true}) {
            int version = sessioned ? 2 : 1;
            var runs = new ExtendedAssignment((short) version, (short) 0, "leader", "http://l:8083", 7,
                List.of("sink"), tasks, List.of("source"), List.of(), 300);
            print("connect-assignment-" + version, IncrementalCooperativeConnectProtocol.serializeAssignment(runs, sessioned));
            print("connect-subscription-" + version, IncrementalCooperativeConnectProtocol.serializeMetadata(
                new ExtendedWorkerState("http://w:8083", 7, runs), sessioned));
            print("connect-subscription-new-" + version, IncrementalCooperativeConnectProtocol.serializeMetadata(
                new ExtendedWorkerState("http://w:8083", 7, null), sessioned));
            print("connect-assignment-empty-" + version, IncrementalCooperativeConnectProtocol.serializeAssignment(
                new ExtendedAssignment((short) version, (short) 1, "leader", "http://l:8083", 7, List.of(), List.of(), List.of(), List.of(), 0), sessioned));
        }
    }

    static void print(String name, ByteBuffer value) {
        byte[] bytes = new byte[value.remaining()];
        value.duplicate().get(bytes);
        System.out.println("{\"name\":\"" + name + "\",\"key\":null,\"value\":\"" + HexFormat.of().formatHex(bytes) + "\"}");
    }
}

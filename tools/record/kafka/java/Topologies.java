import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.coordinator.group.api.streams.*;

/** Runs in the broker: without a plugin that keeps topologies it does not ask members for them. */
public class Topologies implements StreamsGroupTopologyDescriptionPlugin {
    private final Map<String, StreamsGroupTopologyDescription> topologies = new ConcurrentHashMap<>();
    @Override public CompletableFuture<Void> setTopology(
            String group, int epoch, StreamsGroupTopologyDescription topology) {
        topologies.put(group, topology);
        return CompletableFuture.completedFuture(null);
    }
    @Override public CompletableFuture<Void> deleteTopology(String group) {
        topologies.remove(group);
        return CompletableFuture.completedFuture(null);
    }
    @Override public CompletableFuture<StreamsGroupTopologyDescription> getTopology(String group, int epoch) {
        return CompletableFuture.completedFuture(topologies.get(group));
    }
    @Override public void configure(Map<String, ?> configs) { }
    @Override public void close() { }
}

import java.util.*;
import org.apache.kafka.clients.admin.*;

/** Print the leader of each partition of a topic.  Leaders BOOTSTRAP TOPIC */
class Leaders {
    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0], "client.id", "describer"))) {
            for (var partition : admin.describeTopics(List.of(args[1])).allTopicNames().get().get(args[1]).partitions()) {
                System.out.printf("{\"source\": \"client\", \"time\": %d, \"client_id\": \"describer\", \"event\": \"described\", \"partition\": %d, \"leader\": %d}%n",
                    System.currentTimeMillis() * 1_000_000, partition.partition(), partition.leader().id());
            }
        }
    }
}

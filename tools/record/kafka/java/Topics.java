import java.util.*;
import org.apache.kafka.clients.admin.*;

/** Make topics.  Topics BOOTSTRAP NAME:PARTITIONS:REPLICAS...; replicas 1/2: on brokers 1, the leader, and 2. */
class Topics {
    public static void main(String[] args) throws Exception {
        var topics = new ArrayList<NewTopic>();
        for (String spec : Arrays.asList(args).subList(1, args.length)) {
            String[] part = spec.split(":");
            int partitions = Integer.parseInt(part[1]);
            if (part[2].contains("/")) {
                var replicas = Arrays.stream(part[2].split("/")).map(Integer::valueOf).toList();
                var placed = new HashMap<Integer, List<Integer>>();
                for (int i = 0; i < partitions; i++) placed.put(i, replicas);
                topics.add(new NewTopic(part[0], placed));
            } else {
                topics.add(new NewTopic(part[0], partitions, Short.parseShort(part[2])));
            }
        }
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0], "client.id", "topics"))) {
            admin.createTopics(topics).all().get();
        }
    }
}

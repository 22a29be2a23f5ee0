import java.util.*;
import org.apache.kafka.clients.admin.*;

/** Make topics.  Topics BOOTSTRAP NAME:PARTITIONS:REPLICAS... */
class Topics {
    public static void main(String[] args) throws Exception {
        var topics = new ArrayList<NewTopic>();
        for (String spec : Arrays.asList(args).subList(1, args.length)) {
            String[] part = spec.split(":");
            topics.add(new NewTopic(part[0], Integer.parseInt(part[1]), Short.parseShort(part[2])));
        }
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0], "client.id", "topics"))) {
            admin.createTopics(topics).all().get();
        }
    }
}

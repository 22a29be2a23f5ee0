import java.util.*;
import org.apache.kafka.clients.admin.*;

/** DeleteTopics BOOTSTRAP NAME... */
class DeleteTopics {
    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0], "client.id", "topics"))) {
            admin.deleteTopics(Arrays.asList(args).subList(1, args.length)).all().get();
        }
    }
}

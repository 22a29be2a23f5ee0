import java.util.*;
import org.apache.kafka.clients.admin.*;

/** The id of the quorum's leader.  Quorum BOOTSTRAP */
class Quorum {
    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0], "client.id", "quorum"))) {
            System.out.println("leader " + admin.describeMetadataQuorum().quorumInfo().get().leaderId());
        }
    }
}

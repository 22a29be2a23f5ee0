import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.config.ConfigResource;

/** Set a configuration of a group.  GroupConfig BOOTSTRAP GROUP NAME VALUE */
class GroupConfig {
    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0]))) {
            var group = new ConfigResource(ConfigResource.Type.GROUP, args[1]);
            var set = new AlterConfigOp(new ConfigEntry(args[2], args[3]), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(group, List.of(set))).all().get();
        }
    }
}

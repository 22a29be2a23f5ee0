import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.config.ConfigResource;

/** Set configurations.  SetConfig BOOTSTRAP TYPE NAME KEY=VALUE... */
class SetConfig {
    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0], "client.id", "setter"))) {
            var resource = new ConfigResource(ConfigResource.Type.valueOf(args[1]), args[2]);
            var set = new ArrayList<AlterConfigOp>();
            for (String pair : Arrays.asList(args).subList(3, args.length)) {
                String[] part = pair.split("=", 2);
                set.add(new AlterConfigOp(new ConfigEntry(part[0], part[1]), AlterConfigOp.OpType.SET));
            }
            admin.incrementalAlterConfigs(Map.of(resource, set)).all().get();
        }
    }
}

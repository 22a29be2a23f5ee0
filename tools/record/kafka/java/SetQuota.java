import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.quota.*;

/** A quota of bytes that a client may produce in a second: SetQuota BOOTSTRAP CLIENT_ID BYTES */
class SetQuota {
    public static void main(String[] args) throws Exception {
        var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, args[1]));
        var limit = new ClientQuotaAlteration.Op("producer_byte_rate", Double.valueOf(args[2]));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0], "client.id", "setter"))) {
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(limit)))).all().get();
        }
    }
}

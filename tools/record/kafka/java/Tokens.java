import java.util.*;
import org.apache.kafka.clients.admin.*;

/** Delegation tokens: make one, show, renew it; print its id and key; end another.
 *  Tokens BOOTSTRAP PROPERTY=VALUE... */
class Tokens {
    public static void main(String[] args) throws Exception {
        var config = new HashMap<String, Object>(Map.of("bootstrap.servers", args[0], "client.id", "tokens"));
        for (String pair : Arrays.asList(args).subList(1, args.length)) {
            config.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        try (Admin admin = Admin.create(config)) {
            var token = admin.createDelegationToken().delegationToken().get();
            var other = admin.createDelegationToken().delegationToken().get();
            Thread.sleep(1000);  // until the metadata log has brought them to the broker
            admin.describeDelegationToken().delegationTokens().get();
            admin.renewDelegationToken(token.hmac()).expiryTimestamp().get();
            admin.expireDelegationToken(other.hmac()).expiryTimestamp().get();
            System.out.println("token " + token.tokenInfo().tokenId() + " " + token.hmacAsBase64String());
        }
    }
}

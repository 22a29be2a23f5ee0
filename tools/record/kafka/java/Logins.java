import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.security.auth.KafkaPrincipal;

/** An administrator with secrets: passwords, tokens, configurations; then logins, good and bad ones.
 *  Logins BOOTSTRAP PROPERTY=VALUE... */
class Logins {
    static final String MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required ";
    static String bootstrap;

    interface Call { Object run() throws Exception; }

    static void call(String name, Call call) throws Exception {
        try {
            System.out.println(name + " " + call.run());
        } catch (ExecutionException error) {
            System.out.println(name + " failed: " + error.getCause());
        }
    }

    static Admin client(String id, Map<String, String> given) {
        var config = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap, "client.id", id,
            "default.api.timeout.ms", "3000", "request.timeout.ms", "2000", "retries", "0"));
        config.putAll(given);
        return Admin.create(config);
    }

    static void login(String id, String mechanism, String options) throws Exception {
        var given = Map.of("security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", mechanism,
            "sasl.jaas.config", MODULE + options + ";");
        try (Admin admin = client(id, given)) {
            call(id, () -> admin.describeDelegationToken().delegationTokens().get().size());
        }
    }

    static String user(String name, String password) {
        return "username=\"" + name + "\" password=\"" + password + "\"";
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        var given = new HashMap<String, String>();
        for (String pair : Arrays.asList(args).subList(1, args.length)) {
            given.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        try (Admin admin = client("administrator", given)) {
            call("users", () -> admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("bob",
                new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "bob-secret"))).all().get());
            var broker = new ConfigResource(ConfigResource.Type.BROKER, "2");
            call("configs", () -> admin.incrementalAlterConfigs(Map.of(broker, List.of(
                set("listener.name.clients.ssl.keystore.password", "keystore-secret"),
                set("listener.name.clients.ssl.keystore.type", "PKCS12"),
                set("listener.name.clients.plain.sasl.jaas.config", MODULE + user("carol", "jaas-secret") + ";"),
                set("plugin.password", "plugin-secret"), set("log.cleaner.threads", "1")))).all().get());
            call("topic", () -> admin.createTopics(List.of(new NewTopic("safe", 1, (short) 1)
                .configs(Map.of("retention.ms", "60000")))).all().get());
            call("refused topic", () -> admin.createTopics(List.of(new NewTopic("refused", 1, (short) 1)
                .configs(Map.of("ssl.key.password", "topic-secret")))).all().get());
            Thread.sleep(1000);  // until the metadata log has brought them to the broker
            call("described", () -> admin.describeConfigs(List.of(broker),
                new DescribeConfigsOptions().includeSynonyms(true)).all().get().size());
            var renewer = new KafkaPrincipal("User", "bob");
            var token = admin.createDelegationToken(new CreateDelegationTokenOptions()
                .renewers(List.of(renewer)).maxlifeTimeMs(3600000)).delegationToken().get();
            Thread.sleep(1000);
            String id = token.tokenInfo().tokenId(), key = token.hmacAsBase64String();
            login("with-token", "SCRAM-SHA-256", user(id, key) + " tokenauth=\"true\"");
            login("with-wrong-key", "SCRAM-SHA-256", user(id, key.toLowerCase()) + " tokenauth=\"true\"");
            login("bob", "SCRAM-SHA-256", user("bob", "bob-secret"));
            login("with-wrong-password", "SCRAM-SHA-256", user("bob", "not-the-secret"));
            login("with-other-mechanism", "SCRAM-SHA-512", user("bob", "bob-secret"));
            call("renewed", () -> admin.renewDelegationToken(token.hmac()).expiryTimestamp().get());
            call("expired", () -> admin.expireDelegationToken(token.hmac()).expiryTimestamp().get());
            Thread.sleep(1000);
            login("with-expired-token", "SCRAM-SHA-256", user(id, key) + " tokenauth=\"true\"");
        }
    }
}

import java.lang.reflect.Method;
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.*;

/** What an AdminClient of 0.11 can do, and by their names the calls that came later.
 *  OldAdmin BOOTSTRAP RELEASE */
class OldAdmin {
    static AdminClient admin;

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", args[0]);
        config.put("client.id", "admin-" + args[1]);
        admin = AdminClient.create(config);
        String topic = "of-" + args[1];
        admin.createTopics(Collections.singleton(new NewTopic(topic, 2, (short) 1))).all().get();
        Thread.sleep(500);
        admin.listTopics().names().get();
        admin.describeTopics(Collections.singleton(topic));
        admin.describeCluster().nodes().get();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.describeConfigs(Collections.singleton(resource)).all().get();
        Map<ConfigResource, Config> altered = new HashMap<>();
        altered.put(resource, new Config(Collections.singleton(new ConfigEntry("retention.ms", "60000"))));
        admin.alterConfigs(altered).all().get();
        admin.describeAcls(AclBindingFilter.ANY).values().get();
        admin.deleteAcls(Collections.singleton(AclBindingFilter.ANY)).all().get();

        TopicPartition partition = new TopicPartition(topic, 0);
        later("describeLogDirs", Collections.singleton(1));
        later("listConsumerGroups");
        later("describeConsumerGroups", Collections.singleton("nobody"));
        later("deleteConsumerGroups", Collections.singleton("nobody"));
        later("listConsumerGroupOffsets", "nobody");
        later("describeDelegationToken");
        later("createDelegationToken");
        later("renewDelegationToken", new byte[4]);
        later("expireDelegationToken", new byte[4]);
        later("listPartitionReassignments");
        later("describeClientQuotas");
        later("describeUserScramCredentials");
        later("describeFeatures");
        later("describeMetadataQuorum");
        later("listTransactions");
        later("describeTransactions", Collections.singleton("nobody"));
        later("describeProducers", Collections.singleton(partition));
        later("deleteRecords", before(partition));
        later("createPartitions", increase(topic));
        admin.deleteTopics(Collections.singleton(topic)).all().get();
        admin.close();
    }

    /** A call that this release may not have; what comes back is waited for, whatever it is. */
    static void later(String name, Object... given) throws Exception {
        if (Arrays.asList(given).contains(null)) return;
        for (Method method : AdminClient.class.getMethods()) {
            if (!method.getName().equals(name) || method.getParameterCount() != given.length) continue;
            if (given.length > 0 && !method.getParameterTypes()[0].isInstance(given[0])) continue;
            Object result;
            try {
                result = method.invoke(admin, given);
            } catch (ReflectiveOperationException none) {
                continue;
            }
            for (Method answer : result.getClass().getMethods()) {
                if (answer.getParameterCount() == 0 && KafkaFuture.class.isAssignableFrom(answer.getReturnType())) {
                    try {
                        answer.setAccessible(true);
                        System.out.println(name + ": " + ((KafkaFuture<?>) answer.invoke(result)).get(8, TimeUnit.SECONDS));
                    } catch (Exception refused) {
                        System.out.println(name + ": " + refused);
                    }
                    break;
                }
            }
        }
    }

    /** {partition: RecordsToDelete.beforeOffset(0)}; null in a release that has no such class. */
    static Object before(TopicPartition partition) {
        try {
            Class<?> type = Class.forName("org.apache.kafka.clients.admin.RecordsToDelete");
            return Collections.singletonMap(partition, type.getMethod("beforeOffset", long.class).invoke(null, 0L));
        } catch (ReflectiveOperationException absent) {
            return null;
        }
    }

    /** {topic: NewPartitions.increaseTo(3)}; null in a release that has no such class. */
    static Object increase(String topic) {
        try {
            Class<?> type = Class.forName("org.apache.kafka.clients.admin.NewPartitions");
            return Collections.singletonMap(topic, type.getMethod("increaseTo", int.class).invoke(null, 3));
        } catch (ReflectiveOperationException absent) {
            return null;
        }
    }
}

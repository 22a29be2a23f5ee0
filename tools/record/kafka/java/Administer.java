import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;

/** Every call that Admin has, one after the other. The brokers are 1 and 2; a call that this cluster
 *  must refuse is made all the same.
 *  Administer BOOTSTRAP */
class Administer {
    static Admin admin;

    interface Call { Object get() throws Exception; }

    public static void main(String[] args) throws Exception {
        admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0], "client.id", "administrator", "enable.metrics.push", true));
        topics();
        records();
        configs();
        access();
        groups();
        transactions();
        quorum();
        admin.close();
        System.exit(0);
    }

    static void topics() {
        call("createTopics", () -> admin.createTopics(List.of(new NewTopic("a", 2, (short) 1), new NewTopic("b", 1, (short) 2),
            new NewTopic("c", 1, (short) 1))).all().get());
        pause();
        call("listTopics", () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
        call("describeTopics", () -> admin.describeTopics(List.of("a", "b")).allTopicNames().get());
        call("describeCluster", () -> admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true)).nodes().get());
        call("createPartitions", () -> admin.createPartitions(Map.of("a", NewPartitions.increaseTo(3))).all().get());
        call("alterPartitionReassignments", () -> admin.alterPartitionReassignments(Map.of(new TopicPartition("b", 0),
            Optional.of(new NewPartitionReassignment(List.of(2, 1))))).all().get());
        call("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
        pause();
        call("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, null).partitions().get());
        call("describeLogDirs", () -> admin.describeLogDirs(List.of(1, 2)).allDescriptions().get());
        call("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(new TopicPartitionReplica("b", 0, 1))).all().get());
        call("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica("b", 0, 2), otherDisk())).all().get());
        call("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica("b", 0, 1), "/nowhere")).all().get());
        call("deleteTopics", () -> admin.deleteTopics(List.of("c")).all().get());
    }

    /** The disk of broker 2 that partition b-0 is not on. */
    static String otherDisk() throws Exception {
        return admin.describeLogDirs(List.of(2)).allDescriptions().get().get(2).entrySet().stream()
            .filter(disk -> !disk.getValue().replicaInfos().containsKey(new TopicPartition("b", 0)))
            .findFirst().orElseThrow().getKey();
    }

    static void records() {
        var partition = new TopicPartition("orders", 0);
        for (var spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(), OffsetSpec.earliestLocal(),
                OffsetSpec.latestTiered(), OffsetSpec.forTimestamp(0))) {
            call("listOffsets", () -> admin.listOffsets(Map.of(partition, spec)).all().get());
        }
        call("deleteRecords", () -> admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(1))).all().get());
        call("describeProducers", () -> admin.describeProducers(List.of(partition)).all().get());
    }

    static void configs() {
        var topic = new ConfigResource(ConfigResource.Type.TOPIC, "a");
        var broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        var group = new ConfigResource(ConfigResource.Type.GROUP, "readers");
        var metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "all");
        call("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(
            topic, List.of(set("retention.ms", "60000")), broker, List.of(set("log.cleaner.threads", "1")),
            group, List.of(set("consumer.session.timeout.ms", "50000")),
            metrics, List.of(set("interval.ms", "1000"), set("metrics", "org.apache.kafka.")))).all().get());
        pause();
        call("describeConfigs", () -> admin.describeConfigs(List.of(topic, group, metrics), new DescribeConfigsOptions().includeSynonyms(true)).all().get());
        call("listConfigResources", () -> admin.listConfigResources().all().get());
        call("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
        var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "alice"));
        call("alterClientQuotas", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e6))))).all().get());
        call("describeFeatures", () -> admin.describeFeatures().featureMetadata().get());
        call("updateFeatures", () -> admin.updateFeatures(Map.of("transaction.version",
            new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)), new UpdateFeaturesOptions().validateOnly(true)).all().get());
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    static void access() {
        var acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "a", PatternType.PREFIXED),
            new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
        call("createAcls", () -> admin.createAcls(List.of(acl)).all().get());
        pause();
        call("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        call("deleteAcls", () -> admin.deleteAcls(List.of(acl.toFilter())).all().get());
        call("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("alice",
            new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "alice-secret"))).all().get());
        pause();
        call("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get());
        // Without authentication a token has no owner: refused.
        call("createDelegationToken", () -> admin.createDelegationToken().delegationToken().get());
        call("renewDelegationToken", () -> admin.renewDelegationToken(new byte[16]).expiryTimestamp().get());
        call("expireDelegationToken", () -> admin.expireDelegationToken(new byte[16]).expiryTimestamp().get());
        call("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get());
    }

    static void groups() {
        var partition = new TopicPartition("orders", 0);
        var offset = Map.of(partition, new OffsetAndMetadata(1, "by hand"));
        call("listGroups", () -> admin.listGroups().all().get());
        for (String group : List.of("classic", "consumer")) {
            call("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of(group)).all().get());
            call("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get());
            call("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets(group, offset).all().get());
            call("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get());
        }
        call("removeMembersFromConsumerGroup", () -> admin.removeMembersFromConsumerGroup("classic",
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody")))).all().get());
        call("describeClassicGroups", () -> admin.describeClassicGroups(List.of("classic")).all().get());
        call("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of("classic", "consumer")).all().get());
        call("describeShareGroups", () -> admin.describeShareGroups(List.of("sharers")).all().get());
        call("listShareGroupOffsets", () -> admin.listShareGroupOffsets(Map.of("sharers", new ListShareGroupOffsetsSpec())).all().get());
        call("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets("sharers", Map.of(partition, 0L)).all().get());
        call("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets("sharers", Set.of("orders")).all().get());
        call("deleteShareGroups", () -> admin.deleteShareGroups(List.of("sharers")).all().get());
        call("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of("counter"),
            new DescribeStreamsGroupsOptions().includeAuthorizedOperations(true)).all().get());
        call("listStreamsGroupOffsets", () -> admin.listStreamsGroupOffsets(Map.of("counter", new ListStreamsGroupOffsetsSpec())).all().get());
        call("alterStreamsGroupOffsets", () -> admin.alterStreamsGroupOffsets("counter", offset).all().get());
        call("deleteStreamsGroupOffsets", () -> admin.deleteStreamsGroupOffsets("counter", Set.of(partition)).all().get());
        call("deleteStreamsGroups", () -> admin.deleteStreamsGroups(List.of("counter")).all().get());
    }

    static void transactions() {
        call("listTransactions", () -> admin.listTransactions().all().get());
        call("describeTransactions", () -> admin.describeTransactions(List.of("nobody")).all().get());
        call("fenceProducers", () -> admin.fenceProducers(List.of("nobody")).all().get());
        call("describeTransactions", () -> admin.describeTransactions(List.of("nobody")).all().get());
        call("abortTransaction", () -> admin.abortTransaction(new AbortTransactionSpec(new TopicPartition("a", 0), 1, (short) 0, 0)).all().get());
        call("forceTerminateTransaction", () -> admin.forceTerminateTransaction("nobody").result().get());
    }

    static void quorum() {
        call("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get());
        var endpoints = Set.of(new RaftVoterEndpoint("CONTROLLERS", "127.0.0.1", 19099));
        call("addRaftVoter", () -> admin.addRaftVoter(9, Uuid.randomUuid(), endpoints).all().get());
        call("removeRaftVoter", () -> admin.removeRaftVoter(9, Uuid.randomUuid()).all().get());
        call("unregisterBroker", () -> admin.unregisterBroker(9).all().get());
        call("unregisterController", () -> admin.unregisterController(9).all().get());
        call("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(5)));
    }

    static void pause() {
        try {
            Thread.sleep(700);  // the metadata log brings it to all brokers
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    static void call(String name, Call call) {
        var pool = Executors.newSingleThreadExecutor();
        try {
            System.out.println(name + ": " + pool.submit(call::get).get(8, TimeUnit.SECONDS));
        } catch (TimeoutException late) {
            System.out.println(name + " is not answered");
        } catch (Exception refused) {
            System.out.println(name + ": " + refused.getCause());
        } finally {
            pool.shutdownNow();
        }
    }
}

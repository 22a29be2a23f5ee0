import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.*;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.metadata.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.coordinator.group.*;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.generated.*;
import org.apache.kafka.coordinator.transaction.TransactionLog;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.*;

/** Structures with all that Kafka puts around them, by its own serializers, as JSON lines of name, key
 *  and value. Values are fixed: what they must decode to is in the tests. */
class Framed {
    static final Uuid TOPIC = new Uuid(1, 2);
    static final Uuid OTHER = new Uuid(3, 4);

    public static void main(String[] args) throws Exception {
        consumer();
        coordinators();
        metadata();
        control();
        print("principal", null, new DefaultKafkaPrincipalBuilder(null, null)
            .serialize(new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "alice", true)));
    }

    static void consumer() {
        var owned = List.of(new TopicPartition("a", 0), new TopicPartition("a", 1));
        for (short version = 0; version <= 3; version++) {
            var subscription = new ConsumerPartitionAssignor.Subscription(
                List.of("a", "b"), ByteBuffer.wrap(new byte[] {7}), owned, 5, Optional.of("r1"));
            print("subscription-" + version, null, array(ConsumerProtocol.serializeSubscription(subscription, version)));
        }
        var assignment = new ConsumerPartitionAssignor.Assignment(owned, null);
        print("assignment", null, array(ConsumerProtocol.serializeAssignment(assignment)));
    }

    static void coordinators() {
        var group = new GroupCoordinatorRecordSerde();
        var offset = new OffsetCommitKey().setGroup("g").setTopic("a").setPartition(1);
        for (short version = 0; version <= 4; version++) {
            var value = new OffsetCommitValue().setOffset(42).setMetadata("m").setCommitTimestamp(1000);
            print("offset-commit-" + version, group, CoordinatorRecord.record(offset, new ApiMessageAndVersion(value, version)));
        }
        print("offset-commit-gone", group, CoordinatorRecord.tombstone(offset));
        var legacy = new LegacyOffsetCommitKey().setGroup("g").setTopic("a").setPartition(1);
        var legacyValue = new LegacyOffsetCommitValue().setOffset(42).setMetadata("m").setCommitTimestamp(1000);
        print("offset-commit-legacy", group, CoordinatorRecord.record(legacy, new ApiMessageAndVersion(legacyValue, (short) 0)));
        var subscription = ConsumerProtocol.serializeSubscription(new ConsumerPartitionAssignor.Subscription(List.of("a")), (short) 1);
        var member = new GroupMetadataValue.MemberMetadata().setMemberId("m").setClientId("c").setClientHost("/h")
            .setSessionTimeout(10).setSubscription(array(subscription)).setAssignment(new byte[0]);
        var metadata = new GroupMetadataValue().setProtocolType("consumer").setGeneration(3).setProtocol("range")
            .setLeader("m").setMembers(List.of(member));
        print("group-metadata", group, CoordinatorRecord.record(new GroupMetadataKey().setGroup("g"), new ApiMessageAndVersion(metadata, (short) 3)));
        print("consumer-group-target", group, GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentRecord("g", "m", Map.of(TOPIC, Set.of(1))));
        var share = new ShareUpdateValue().setSnapshotEpoch(1).setLeaderEpoch(2).setStartOffset(3);
        print("share-update", new ShareCoordinatorRecordSerde(), CoordinatorRecord.record(
            new ShareUpdateKey().setGroupId("g").setTopicId(TOPIC).setPartition(4), new ApiMessageAndVersion(share, (short) 0)));
        print("transaction-gone", TransactionLog.keyToBytes("tx"), null);
    }

    static void metadata() {
        var topic = new TopicRecord().setName("a").setTopicId(TOPIC);
        print("topic-record", null, metadata(topic, 0));
        print("no-op-record", null, metadata(new NoOpRecord(), 0));
        var change = new PartitionChangeRecord().setPartitionId(1).setTopicId(TOPIC).setIsr(List.of(2, 3)).setLeader(2)
            .setEligibleLeaderReplicas(List.of(4));
        print("partition-change-record", null, metadata(change, 2));
        var segment = new RemoteLogSegmentId(new TopicIdPartition(TOPIC, 1, "a"), OTHER);
        var serde = new RemoteLogMetadataSerde();
        print("remote-segment", null, serde.serialize(new RemoteLogSegmentMetadata(segment, 0, 9, 1000, 1, 2000, 333, Map.of(0, 0L))));
        print("remote-segment-update", null, serde.serialize(new RemoteLogSegmentMetadataUpdate(
            segment, 3000, Optional.empty(), RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 1)));
        print("remote-partition-delete", null, serde.serialize(new RemotePartitionDeleteMetadata(
            segment.topicIdPartition(), RemotePartitionDeleteState.DELETE_PARTITION_MARKED, 4000, 1)));
    }

    static byte[] metadata(ApiMessage message, int version) {
        var record = new ApiMessageAndVersion(message, (short) version);
        var cache = new ObjectSerializationCache();
        ByteBuffer data = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(data));
        return data.array();
    }

    static void control() {
        for (var kind : List.of(ControlRecordType.ABORT, ControlRecordType.COMMIT)) {
            print(kind.name().toLowerCase(), array(kind.recordKey()), array(new EndTransactionMarker(kind, 6).serializeValue()));
        }
        for (short version = 0; version <= 1; version++) {
            var voter = new LeaderChangeMessage.Voter().setVoterId(1).setVoterDirectoryId(version == 0 ? Uuid.ZERO_UUID : TOPIC);
            var leader = new LeaderChangeMessage().setVersion(version).setLeaderId(1).setVoters(List.of(voter));
            control("leader-change-" + version, ControlRecordType.LEADER_CHANGE, leader, version);
        }
        control("snapshot-header", ControlRecordType.SNAPSHOT_HEADER, new SnapshotHeaderRecord().setLastContainedLogTimestamp(5), 0);
        control("snapshot-footer", ControlRecordType.SNAPSHOT_FOOTER, new SnapshotFooterRecord(), 0);
        control("kraft-version", ControlRecordType.KRAFT_VERSION, new KRaftVersionRecord().setKRaftVersion((short) 1), 0);
        var voter = new VotersRecord.Voter().setVoterId(1).setVoterDirectoryId(TOPIC);
        control("kraft-voters", ControlRecordType.KRAFT_VOTERS, new VotersRecord().setVoters(List.of(voter)), 0);
    }

    static void control(String name, ControlRecordType kind, Message message, int version) {
        print(name, array(kind.recordKey()), array(MessageUtil.toByteBufferAccessor(message, (short) version).buffer()));
    }

    static void print(String name, CoordinatorRecordSerde serde, CoordinatorRecord entry) {
        print(name, serde.serializeKey(entry), entry.value() == null ? null : serde.serializeValue(entry));
    }

    static void print(String name, byte[] key, byte[] value) {
        System.out.println("{\"name\":\"" + name + "\",\"key\":" + hex(key) + ",\"value\":" + hex(value) + "}");
    }

    static String hex(byte[] bytes) {
        return bytes == null ? null : "\"" + HexFormat.of().formatHex(bytes) + "\"";
    }

    static byte[] array(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }
}

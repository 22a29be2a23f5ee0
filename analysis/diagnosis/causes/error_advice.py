"""Causes and remedies of error codes, for the rule `recurring_errors`.

The meaning of a code is that of Kafka's `Errors` class and the documentation of its exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from analysis.diagnosis.words import Advice

_ACL: Final = Advice(
    "the principal of the client has no ACL for this operation",
    "broker", None,
    "Grant the operation with kafka-acls.sh --add, or correct the name that the client uses.",
    "Kafka documentation: Security, Authorization and ACLs",
)  # fmt: skip
_LEADER: Final = Advice(
    "leaders keep moving, or the client does not refresh its metadata",
    "broker", "auto.leader.rebalance.enable",
    "Look for brokers that restart or lose their session (leadership shows the moves).",
    "KIP-951",
)  # fmt: skip
_NO_LEADER: Final = Advice(
    "a partition has no leader: all replicas that may lead are on brokers that are down or came "
    "back without their data, or in log directories that are offline",
    "broker", "default.replication.factor",
    "Start the brokers of its replicas. With three replicas, another one would lead. Elect an "
    "unclean leader only if records may be lost.",
    "KIP-966; Kafka documentation: Replication",
)  # fmt: skip
_STORAGE: Final = Advice(
    "a log directory of the broker is offline: its disk is full or failed",
    "broker", "log.dirs",
    "Look at the log of the broker (No space left on device). Free space or replace the disk, and "
    "restart the broker: it uses the directory again only then. Partitions with other replicas in "
    "sync get leaders there.",
    "KIP-112, KIP-858",
)  # fmt: skip
_QUORUM: Final = Advice(
    "the controllers keep electing leaders, or a node tries each controller to find the leader",
    "broker", "controller.quorum.fetch.timeout.ms",
    "Look for controllers that restart, are paused, or lose their connections.",
    "KIP-595",
)  # fmt: skip
_COORDINATOR: Final = Advice(
    "the coordinator is loading its state or moving, or too few replicas of its internal topic are "
    "in sync",
    "broker", "offsets.topic.replication.factor",
    "Look for brokers that restart, and for partitions of __consumer_offsets and "
    "__transaction_state that are offline or have fewer replicas in sync than "
    "min.insync.replicas.",
    "Kafka documentation: Monitoring",
)  # fmt: skip
_NO_COORDINATOR: Final = Advice(
    "the internal topic of the coordinator, __consumer_offsets or __transaction_state, has no "
    "leader or does not exist: brokers create it when there are as many brokers as its replication "
    "factor, 3 by default",
    "broker", "offsets.topic.replication.factor",
    "Start the missing brokers. In a smaller cluster, lower offsets.topic.replication.factor, "
    "transaction.state.log.replication.factor and transaction.state.log.min.isr.",
    "Kafka documentation: Broker Configs, offsets.topic.replication.factor",
)  # fmt: skip
_NO_PRODUCER_IDS: Final = Advice(
    "the broker has no producer ids left, and no active controller gives it a new block; or, for a "
    "producer with a transactional.id, the coordinator is loading its state",
    "broker", "controller.quorum.bootstrap.servers",
    "Look for controllers that are down or that the broker cannot reach, and for an error of "
    "AllocateProducerIds in the log of the broker.",
    "KIP-730",
)  # fmt: skip
_FEW_BROKERS: Final = Advice(
    "the cluster has fewer brokers than the replication factor of a new topic",
    "client", None,
    "Bring the missing brokers back, or lower the replication factor of the topic. For internal "
    "topics it is a setting of the brokers, such as offsets.topic.replication.factor.",
    "Kafka documentation: Broker Configs, default.replication.factor",
)  # fmt: skip
_MEMBER: Final = Advice(
    "the group removed the member, because it did not poll or send heartbeats in time",
    "client", "max.poll.interval.ms",
    "See groups for the rebalances. Lower max.poll.records, or raise max.poll.interval.ms. If "
    "Heartbeats fail, the session ended: session.timeout.ms should be at least three times "
    "heartbeat.interval.ms.",
    "KIP-62",
)  # fmt: skip
_REPLICAS: Final = Advice(
    "fewer replicas are in sync than min.insync.replicas requires for acks=all",
    "broker", "min.insync.replicas",
    "Bring the missing replicas back. Do not lower min.insync.replicas, which would risk data "
    "loss.",
    "Kafka documentation: Topic Configs, min.insync.replicas",
)  # fmt: skip
_TOO_LARGE: Final = Advice(
    "a batch is larger than the topic or broker allows. The Java client splits it and loses only "
    "records that are too large alone; other clients lose all records of the batch",
    "client", "max.request.size",
    "Set max.request.size and batch.size of the producer below max.message.bytes of the topic. For "
    "larger records, compress them, or raise max.message.bytes.",
    "KIP-126; Kafka documentation: Topic Configs, max.message.bytes",
)  # fmt: skip
_SEQUENCE: Final = Advice(
    "batches of an idempotent producer arrived out of order or after the broker forgot the "
    "producer",
    "client", "enable.idempotence",
    "Look for an earlier batch that failed (producers --show gaps). Upgrade clients older than "
    "2.5.",
    "KIP-360",
)  # fmt: skip
_INSTANCE: Final = Advice(
    "two members use the same group.instance.id",
    "client", "group.instance.id",
    "Give each instance a group.instance.id of its own.",
    "KIP-345, KIP-848",
)  # fmt: skip
_PROTOCOL: Final = Advice(
    "the members of the group have no assignor in common, or use both the classic and the consumer "
    "protocol",
    "client", "partition.assignment.strategy",
    "Compare partition.assignment.strategy and group.protocol of all members. To change the "
    "assignor without downtime, let all members support both for one rolling restart.",
    "KIP-429, KIP-848",
)  # fmt: skip
_TOPIC_ID: Final = Advice(
    "the topic was deleted, or deleted and created again, which gives it another id",
    "broker", None,
    "Create the topic again if its clients need it, and restart those that then still fail. Stop "
    "the clients of a topic before you delete it; to remove only its records, use "
    "kafka-delete-records.sh.",
    "KIP-516",
)  # fmt: skip
_SASL: Final = Advice(
    "the listener does not use SASL, or does not support the mechanism of the client",
    "client", "security.protocol",
    "Compare security.protocol and sasl.mechanism of the client with "
    "listener.security.protocol.map and sasl.enabled.mechanisms of the broker, for this port.",
    "KIP-43; Kafka documentation: Security, Authentication using SASL",
)  # fmt: skip
MISROUTED: Final = Advice(
    "connections for one broker reach another one: several brokers advertise the same address, for "
    "example that of a load balancer, or a broker has the former address of another one",
    "broker", "advertised.listeners",
    "Advertise an address of its own for each broker. A load balancer in front of several brokers "
    "may only be in bootstrap.servers.",
    "KIP-1242; Kafka documentation: Broker Configs, advertised.listeners",
)  # fmt: skip

ADVICE: Final[Mapping[str, Advice]] = {
    "TOPIC_AUTHORIZATION_FAILED": _ACL,
    "GROUP_AUTHORIZATION_FAILED": _ACL,
    "CLUSTER_AUTHORIZATION_FAILED": _ACL,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _ACL,
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": _ACL,
    "CONCURRENT_TRANSACTIONS": Advice(
        "the coordinator is still writing the markers of the previous transaction when the client "
        "begins the next one: the transactions are short, the brokers are slow, or the leader of a "
        "partition is down",
        "client", None,
        "Commit less often, with more records in a transaction. The answer latency shows the time "
        "of WriteTxnMarkers, and of Produce at the leaders that write the markers.",
        "KIP-98; KIP-890",
    ),
    "SASL_AUTHENTICATION_FAILED": Advice(
        "the client has a wrong user, password or token",
        "client", "sasl.jaas.config",
        "Correct the credentials of the client. If its token has expired, issue a new one, and "
        "compare the clocks of the broker and of the issuer.",
        "Kafka documentation: Security, Authentication using SASL",
    ),
    "ILLEGAL_SASL_STATE": _SASL,
    "UNSUPPORTED_SASL_MECHANISM": _SASL._replace(
        cause="the listener does not support the mechanism of the client",
        change="Set sasl.mechanism of the client to a mechanism of the listener, or add it to "
        "sasl.enabled.mechanisms of the broker.",
        setting="sasl.mechanism",
    ),
    "REBOOTSTRAP_REQUIRED": MISROUTED,
    "NOT_LEADER_OR_FOLLOWER": _LEADER,
    "LEADER_NOT_AVAILABLE": _NO_LEADER,
    "FENCED_LEADER_EPOCH": _LEADER,
    "UNKNOWN_LEADER_EPOCH": _LEADER,
    "REPLICA_NOT_AVAILABLE": _LEADER,
    "COORDINATOR_NOT_AVAILABLE": _COORDINATOR,
    "COORDINATOR_LOAD_IN_PROGRESS": _COORDINATOR,
    "NOT_COORDINATOR": _COORDINATOR,
    "NOT_ENOUGH_REPLICAS": _REPLICAS,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": _REPLICAS,
    "MESSAGE_TOO_LARGE": _TOO_LARGE,
    "RECORD_LIST_TOO_LARGE": _TOO_LARGE,
    "UNKNOWN_MEMBER_ID": _MEMBER,
    "ILLEGAL_GENERATION": _MEMBER,
    "FENCED_MEMBER_EPOCH": _MEMBER,
    "INCONSISTENT_GROUP_PROTOCOL": _PROTOCOL,
    "UNKNOWN_TOPIC_ID": _TOPIC_ID,
    "INCONSISTENT_TOPIC_ID": _TOPIC_ID,
    "INVALID_SESSION_TIMEOUT": Advice(
        "the session timeout of the client is outside of the limits of the broker",
        "client", "session.timeout.ms",
        "Set session.timeout.ms between group.min.session.timeout.ms (6 s by default) and "
        "group.max.session.timeout.ms (30 min) of the broker.",
        "Kafka documentation: Broker Configs, group.min.session.timeout.ms",
    ),
    "DUPLICATE_BROKER_REGISTRATION": Advice(
        "a broker with this node.id is registered: it stopped and started again before its "
        "session ended, or two brokers have the same id",
        "broker", "node.id",
        "Wait for broker.session.timeout.ms (9 s by default): the broker tries again. If the error "
        "persists, compare node.id of the brokers.",
        "KIP-631",
    ),
    "GROUP_MAX_SIZE_REACHED": Advice(
        "the group has as many members as the broker permits",
        "broker", "group.max.size",
        "Stop members that have no partition, or raise group.max.size (group.consumer.max.size "
        "for the consumer protocol).",
        "KIP-389",
    ),
    "FENCED_INSTANCE_ID": _INSTANCE,
    "UNRELEASED_INSTANCE_ID": _INSTANCE,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": _SEQUENCE,
    "UNKNOWN_PRODUCER_ID": _SEQUENCE,
    "DUPLICATE_SEQUENCE_NUMBER": _SEQUENCE,
    "UNKNOWN_TOPIC_OR_PARTITION": Advice(
        "the topic does not exist, was deleted, or its name is wrong",
        "client", None,
        "Correct the name, or create the topic before clients use it.",
        "Kafka documentation: Broker Configs, auto.create.topics.enable",
    ),
    "OFFSET_OUT_OF_RANGE": Advice(
        "the log no longer has the offsets that the consumer reads: retention or DeleteRecords "
        "deleted them, or the topic was created again",
        "broker", "retention.ms",
        "Raise retention.ms or retention.bytes of the topic above the lag of its consumers; see "
        "lag. auto.offset.reset determines where the consumer continues.",
        "Kafka documentation: Topic Configs, retention.ms",
    ),
    "REQUEST_TIMED_OUT": Advice(
        "followers did not acknowledge in time, or the controller was too slow",
        "broker", "replica.lag.time.max.ms",
        "Look for slow or overloaded followers.",
        "Kafka documentation: Monitoring",
    ),
    "CORRUPT_MESSAGE": Advice(
        "the checksum of a batch is wrong because of a faulty client, network card or disk",
        "client", None,
        "Compare quality (batches with a wrong checksum) at the client and at the broker.",
        "Kafka documentation: Record Batch",
    ),
    "KAFKA_STORAGE_ERROR": _STORAGE,
    "INVALID_TXN_STATE": Advice(
        "the producer calls transactional methods in the wrong order, or the broker has ended its "
        "transaction: after a timeout, or for another producer with the same transactional.id",
        "client", "transaction.timeout.ms",
        "Abort after an error before the next transaction; see producers --show transactions.",
        "KIP-98",
    ),
    "INVALID_TRANSACTION_TIMEOUT": Advice(
        "the transaction timeout of the producer is larger than the broker permits",
        "client", "transaction.timeout.ms",
        "Lower transaction.timeout.ms, or raise transaction.max.timeout.ms of the broker (15 min "
        "by default).",
        "KIP-98; Kafka documentation: Broker Configs, transaction.max.timeout.ms",
    ),
    "INVALID_RECORD": Advice(
        "the broker validates records and rejects these, for example records without a key in a "
        "compacted topic",
        "client", None,
        "Give each record a key, or remove compact from cleanup.policy of the topic.",
        "KIP-467; Kafka documentation: Topic Configs, cleanup.policy",
    ),
    "INVALID_TIMESTAMP": Advice(
        "the timestamps of the records are too far from the clock of the broker: the clock of a "
        "host is wrong, or the application sets timestamps itself",
        "client", None,
        "Compare the clocks of both hosts, and look for timestamps in seconds or microseconds "
        "instead of milliseconds. Old records, for example of an import, need a larger "
        "message.timestamp.before.max.ms of the topic.",
        "KIP-937",
    ),
    "INVALID_REPLICATION_FACTOR": _FEW_BROKERS,
    "UNSUPPORTED_COMPRESSION_TYPE": Advice(
        "the version of the request does not permit the codec: zstd needs Produce 7 and Fetch 10",
        "client", "compression.type",
        "Upgrade the client, or choose a codec that all producers and consumers of the topic "
        "support.",
        "KIP-110",
    ),
    "OFFSET_METADATA_TOO_LARGE": Advice(
        "the client commits offsets with too much metadata",
        "client", None,
        "Commit less metadata, or raise offset.metadata.max.bytes of the broker (4 kB by default).",
        "Kafka documentation: Broker Configs, offset.metadata.max.bytes",
    ),
    "INVALID_RECORD_STATE": Advice(
        "a member of a share group acknowledges records whose lock has expired: it takes longer to "
        "process them than the lock lasts, and other members get them again",
        "client", "max.poll.records",
        "Process fewer records per poll (max.poll.records), process them faster, renew the lock "
        "(KIP-1222), or raise share.record.lock.duration.ms of the group (30 s by default).",
        "KIP-932",
    ),
    "POLICY_VIOLATION": Advice(
        "a policy of the brokers forbids the request",
        "broker", "create.topic.policy.class.name",
        "Follow the policy: the broker's error message has the reason.",
        "KIP-108, KIP-133",
    ),
    "UNKNOWN_SERVER_ERROR": Advice(
        "the broker failed with an exception for which there is no error code: a defect of the "
        "broker, or a plugin such as an authorizer, a policy or remote storage",
        "broker", None,
        "Look at the log of the broker at these times: it has the exception and its stack trace.",
        "Kafka documentation: Protocol Guide, Error Codes",
    ),
    "TOPIC_ALREADY_EXISTS": Advice(
        "the client creates the topic to be sure that it exists, as workers and tasks of Kafka "
        "Connect do at each start, or two applications use the same name",
        "client", None,
        "Look at the log of the client. If it continues, the error is harmless, but the topic "
        "keeps its partitions and configuration.",
        "Kafka documentation: Protocol Guide, Error Codes",
    ),
    "INVALID_TOPIC_EXCEPTION": Advice(
        "the name of the topic is not valid, or the client writes to an internal topic",
        "client", None,
        "Use up to 249 letters, digits, dots, underscores and hyphens. The names . and .. are not "
        "valid either.",
        "Kafka documentation: Basic Kafka Operations, Adding and removing topics",
    ),
    "UNSUPPORTED_ASSIGNOR": Advice(
        "the members ask for an assignor that the broker does not have",
        "client", "group.remote.assignor",
        "Remove group.remote.assignor of the members, so that the broker chooses, or compare it "
        "with group.consumer.assignors of the brokers (uniform and range by default).",
        "KIP-848",
    ),
    "INVALID_REGULAR_EXPRESSION": Advice(
        "the broker cannot compile the pattern to which the consumer subscribes: with "
        "group.protocol=consumer, it is one of RE2/J and not of Java",
        "client", None,
        "Write the pattern without look-around and back references, or list the topics.",
        "KIP-848",
    ),
    "INVALID_PRODUCER_ID_MAPPING": Advice(
        "the coordinator has forgotten the transactional id: it had no transaction for "
        "transactional.id.expiration.ms (7 days by default)",
        "broker", "transactional.id.expiration.ms",
        "Create the producer again, or raise transactional.id.expiration.ms of the brokers above "
        "the longest time without a transaction.",
        "KIP-98; Kafka documentation: Broker Configs, transactional.id.expiration.ms",
    ),
    "UNSTABLE_OFFSET_COMMIT": Advice(
        "an open transaction contains offsets of the group: its producer processes for long, "
        "hangs, or ended without a commit",
        "client", "transaction.timeout.ms",
        "See producers --show transactions. A lower transaction.timeout.ms of the producer ends "
        "the wait earlier.",
        "KIP-447",
    ),
    "INCONSISTENT_CLUSTER_ID": Advice(
        "a node of one cluster connects to a controller of another one: an address of the quorum "
        "is wrong, or a log directory was formatted with another cluster id",
        "broker", "controller.quorum.bootstrap.servers",
        "Compare cluster.id in meta.properties of the log directories of both nodes.",
        "KIP-595",
    ),
    "UNSUPPORTED_VERSION": Advice(
        "the broker does not support the version or feature that the client uses",
        "client", None,
        "Upgrade the broker, or the client if its version was removed (versions).",
        "KIP-896",
    ),
}  # fmt: skip

AFTER_END: Final = Advice(
    "the consumer reads after the end of the log: the application seeks there, the topic was "
    "created again, or an unclean leader election truncated the log",
    "client", "auto.offset.reset",
    "Compare the offset with the committed one (lag) and with the end of the log. "
    "auto.offset.reset determines where the consumer continues.",
    "KIP-320",
)  # fmt: skip
"""For OFFSET_OUT_OF_RANGE, if the offset is after the end."""

NOT_MEMBER: Final = Advice(
    "the consumer uses assign() and commits offsets of a group that has members: only members may "
    "commit them",
    "client", "group.id",
    "Give the consumer a group.id of its own, or use subscribe(). To change the offsets of a "
    "group, stop its members first (kafka-consumer-groups.sh --reset-offsets).",
    "Kafka documentation: KafkaConsumer, Manual Partition Assignment",
)  # fmt: skip
"""For UNKNOWN_MEMBER_ID, if the client has never been a member."""

NOT_RESET: Final = Advice(
    "retention or DeleteRecords deleted the records at this offset, and the consumer does not "
    "continue elsewhere, because auto.offset.reset is none; the application starts it again",
    "client", "auto.offset.reset",
    "Set the offsets of the group (kafka-consumer-groups.sh --reset-offsets), or auto.offset.reset "
    "to earliest or latest. Raise retention.ms or retention.bytes of the topic above the lag of "
    "its consumers.",
    "Kafka documentation: Consumer Configs, auto.offset.reset",
)  # fmt: skip
"""For OFFSET_OUT_OF_RANGE, if the consumer does not reset its offset."""

FOLLOWERS: Final = Advice(
    "the principal of the brokers has no ACL for ClusterAction on the cluster, without which the "
    "leader refuses all Fetches of followers",
    "broker", "super.users",
    "Grant it: kafka-acls.sh --add --cluster --operation ClusterAction --allow-principal "
    "User:NAME. Or add the principal to super.users of all brokers.",
    "Kafka documentation: Security, Authorization and ACLs",
)  # fmt: skip
"""For TOPIC_AUTHORIZATION_FAILED of followers."""

PURGED: Final = Advice(
    "a client deleted records that the consumer had not read yet",
    "client", None,
    "Delete records only before the committed offsets of all groups (lag). auto.offset.reset "
    "determines where the consumer continues.",
    "KIP-107",
)  # fmt: skip
"""For OFFSET_OUT_OF_RANGE after DeleteRecords."""

RETRIABLE: Final = Advice(
    "a temporary condition of the broker persists; clients retry without reporting it",
    "broker", "retries",
    "Look at the log of the broker at these times.",
    "Kafka documentation: Protocol Guide, Error Codes",
)  # fmt: skip
FINAL: Final = Advice(
    "the request is invalid for this broker; clients do not retry it",
    "client", None,
    "Look at the log of the client at these times: its exception has the reason.",
    "Kafka documentation: Protocol Guide, Error Codes",
)  # fmt: skip


IN_API: Final[Mapping[tuple[str, str], Advice]] = {
    ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"): _NO_COORDINATOR,
    ("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS"): _NO_PRODUCER_IDS,
    ("Produce", "REQUEST_TIMED_OUT"): _REPLICAS,  # the leader waited for followers
}
"""Advice that depends on the API, by API and error."""

OUTAGES: Final = (_NO_LEADER, _STORAGE, _NO_COORDINATOR, _REPLICAS, _TOPIC_ID)
"""Advice on errors with which brokers do not serve clients at all, until the cause has gone."""

_OF_BROKERS: Final = (
    _LEADER, _NO_LEADER, _STORAGE, _QUORUM, _COORDINATOR, _NO_COORDINATOR, _REPLICAS,
    _FEW_BROKERS, _MEMBER,
)  # fmt: skip
"""Advice on errors that do not depend on the topic of the request."""
MOVED: Final = tuple(name for name, given in ADVICE.items() if given == _LEADER)
MISPLACED: Final = (*MOVED, "NOT_COORDINATOR", "REBOOTSTRAP_REQUIRED")
"""Errors of brokers that are not the one that the client needs."""
REMOVED: Final = tuple(name for name, given in ADVICE.items() if given == _MEMBER)
OFFLINE: Final = "KAFKA_STORAGE_ERROR"
NO_LEADER: Final = "LEADER_NOT_AVAILABLE"
DELETED: Final = ("UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID")
UNKNOWN: Final = (*DELETED, "UNKNOWN_TOPIC_OR_PARTITION")


def cause(api: str, error: str, topic: str | None) -> tuple[str, str | None]:
    """Errors with the same value have one cause, for whatever client.

    If a topic is deleted, APIs with topic ids (KIP-516) and those with names have different errors.
    """
    given = IN_API.get((api, error), ADVICE.get(error))
    if given in _OF_BROKERS:
        return given.cause, None
    if error in UNKNOWN:
        return "unknown topic", topic
    return (error if given is _ACL else f"{api} {error}"), topic


def advice(api: str, error: str, retriable: bool, topic: str | None) -> Advice:
    """The cause and the remedy of an error in an API, for a topic. KRaft has elections of its
    own."""
    given = IN_API.get((api, error), ADVICE.get(error, RETRIABLE if retriable else FINAL))
    is_election = topic == "__cluster_metadata" and given in (_LEADER, _NO_LEADER)
    return _QUORUM if is_election else given

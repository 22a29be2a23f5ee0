"""Causes and remedies of error codes, for the rule `recurring_errors`.

The meaning of a code is that of Kafka's `Errors` class and the documentation of its exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from analysis.diagnosis.rule import BROKER, CLIENT


class Advice(NamedTuple):
    cause: str
    side: str
    setting: str | None
    change: str
    reference: str


_ACL: Final = Advice(
    "the principal of the client has no ACL for this operation",
    BROKER,
    "authorizer.class.name",
    "Grant the operation with kafka-acls.sh --add, or correct the name that the client uses.",
    "Kafka documentation: Security, Authorization and ACLs",
)
_LEADER: Final = Advice(
    "leaders move again and again, or the client does not refresh its metadata",
    BROKER,
    "auto.leader.rebalance.enable",
    "Look for brokers that restart or lose their session (leadership shows the moves).",
    "KIP-951",
)
_COORDINATOR: Final = Advice(
    "the coordinator loads its state, moves, or its internal topic lacks replicas",
    BROKER,
    "offsets.topic.replication.factor",
    "Look for brokers that restart, and for offline partitions of __consumer_offsets and "
    "__transaction_state.",
    "Kafka documentation: Monitoring",
)
_MEMBER: Final = Advice(
    "the group removed the member, because it did not poll or send heartbeats in time",
    CLIENT,
    "max.poll.interval.ms",
    "See groups for the rebalances. Lower max.poll.records, or raise max.poll.interval.ms.",
    "KIP-62",
)
_REPLICAS: Final = Advice(
    "fewer replicas are in sync than min.insync.replicas demands for acks=all",
    BROKER,
    "min.insync.replicas",
    "Bring the missing replicas back. Do not lower min.insync.replicas: it would risk data.",
    "Kafka documentation: Topic Configs, min.insync.replicas",
)
_TOO_LARGE: Final = Advice(
    "a batch is larger than the topic or broker allows: its records are lost",
    BROKER,
    "max.message.bytes",
    "Send smaller records or compress them; otherwise raise max.message.bytes of the topic, "
    "message.max.bytes of brokers and max.request.size of the producer together.",
    "Kafka documentation: Topic Configs, max.message.bytes",
)
_SEQUENCE: Final = Advice(
    "batches of an idempotent producer arrived out of order or after the broker forgot the "
    "producer",
    CLIENT,
    "enable.idempotence",
    "Look for an earlier batch that failed (producers --show gaps). Upgrade clients older than "
    "2.5.",
    "KIP-360",
)

ADVICE: Final[Mapping[str, Advice]] = {
    "TOPIC_AUTHORIZATION_FAILED": _ACL,
    "GROUP_AUTHORIZATION_FAILED": _ACL,
    "CLUSTER_AUTHORIZATION_FAILED": _ACL,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _ACL,
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": _ACL,
    "SASL_AUTHENTICATION_FAILED": Advice(
        "the client has a wrong user, password or token",
        CLIENT,
        "sasl.jaas.config",
        "Correct the credentials of the client; expired tokens need another login.",
        "Kafka documentation: Security, Authentication using SASL",
    ),
    "NOT_LEADER_OR_FOLLOWER": _LEADER,
    "LEADER_NOT_AVAILABLE": _LEADER,
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
    "FENCED_INSTANCE_ID": Advice(
        "two members use the same group.instance.id",
        CLIENT,
        "group.instance.id",
        "Give each instance a group.instance.id of its own.",
        "KIP-345",
    ),
    "OUT_OF_ORDER_SEQUENCE_NUMBER": _SEQUENCE,
    "UNKNOWN_PRODUCER_ID": _SEQUENCE,
    "DUPLICATE_SEQUENCE_NUMBER": _SEQUENCE,
    "UNKNOWN_TOPIC_OR_PARTITION": Advice(
        "the topic does not exist, was deleted, or its name is wrong",
        CLIENT,
        "auto.create.topics.enable",
        "Correct the name, or create the topic before clients use it.",
        "Kafka documentation: Broker Configs, auto.create.topics.enable",
    ),
    "OFFSET_OUT_OF_RANGE": Advice(
        "the consumer reads offsets that retention has deleted: records are lost",
        BROKER,
        "retention.ms",
        "Raise retention.ms or retention.bytes of the topic above the lag of its consumers; see "
        "lag. auto.offset.reset decides where the consumer continues.",
        "Kafka documentation: Topic Configs, retention.ms",
    ),
    "REQUEST_TIMED_OUT": Advice(
        "followers did not acknowledge in time, or the controller was too slow",
        BROKER,
        "replica.lag.time.max.ms",
        "Look for slow or overloaded followers.",
        "Kafka documentation: Monitoring",
    ),
    "CORRUPT_MESSAGE": Advice(
        "the checksum of a batch is wrong: a faulty client, network card or disk",
        CLIENT,
        None,
        "Compare quality (batches with a wrong checksum) at the client and at the broker.",
        "Kafka documentation: Record Batch",
    ),
    "KAFKA_STORAGE_ERROR": Advice(
        "a disk of the broker failed",
        BROKER,
        "log.dirs",
        "Look at the log of the broker and replace the disk.",
        "KIP-112",
    ),
    "INVALID_TXN_STATE": Advice(
        "the producer calls transactional methods in a wrong order, or after a timeout",
        CLIENT,
        "transaction.timeout.ms",
        "Abort after an error before the next transaction; see producers --show transactions.",
        "KIP-98",
    ),
    "POLICY_VIOLATION": Advice(
        "a policy of the brokers forbids the request",
        BROKER,
        "create.topic.policy.class.name",
        "Follow the policy: the broker's error message has the reason.",
        "KIP-108, KIP-133",
    ),
    "UNSUPPORTED_VERSION": Advice(
        "the broker does not support the version or feature that the client uses",
        CLIENT,
        None,
        "Upgrade the broker, or the client if its version was removed (versions).",
        "KIP-896",
    ),
}

RETRIABLE: Final = Advice(
    "a temporary condition of the broker that lasts; clients retry it without a message",
    BROKER,
    "retries",
    "Look at the log of the broker at these times.",
    "Kafka documentation: Protocol Guide, Error Codes",
)
FINAL: Final = Advice(
    "the request is wrong for this broker; clients do not retry it",
    CLIENT,
    None,
    "Look at the log of the client at these times: its exception has the reason.",
    "Kafka documentation: Protocol Guide, Error Codes",
)


def advice(error: str, retriable: bool) -> Advice:
    """The cause and the remedy of an error code."""
    return ADVICE.get(error, RETRIABLE if retriable else FINAL)

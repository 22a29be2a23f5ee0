"""Normal operation of Kafka: errors and unanswered requests that are not problems.

Brokers direct clients with some error codes, which Kafka's own clients handle without a message to
the user. Requests may be in flight when the capture or their connection ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

NORMAL_ERRORS: Final = MappingProxyType(
    {
        "MEMBER_ID_REQUIRED": "the coordinator gives a new member its id (KIP-394)",
        "REBALANCE_IN_PROGRESS": "the coordinator asks a member to join its group again",
        "COORDINATOR_LOAD_IN_PROGRESS": "a coordinator loads its state after a start or a move",
        "COORDINATOR_NOT_AVAILABLE": "the topic of the coordinator is being created or moved",
        "NOT_COORDINATOR": "the coordinator moved, and clients look it up again",
        "NOT_CONTROLLER": "the controller moved, and clients look it up again",
        "NOT_LEADER_OR_FOLLOWER": "the leader moved, and clients request metadata",
        "LEADER_NOT_AVAILABLE": "a leader is being elected, as for each new topic",
        "NEW_LEADER_ELECTED": "a change of replicas was overtaken by an election",
        "FENCED_LEADER_EPOCH": "the client does not know of an election yet (KIP-320)",
        "UNKNOWN_LEADER_EPOCH": "the broker does not know of an election yet (KIP-320)",
        "FETCH_SESSION_ID_NOT_FOUND": "the broker evicted a fetch session (KIP-227)",
        "INVALID_FETCH_SESSION_EPOCH": "a fetch session restarts (KIP-227)",
        "FETCH_SESSION_TOPIC_ID_ERROR": "a fetch session restarts with or without ids (KIP-516)",
        "OFFSET_MOVED_TO_TIERED_STORAGE": "a follower continues from the remote tier (KIP-405)",
        "CONCURRENT_TRANSACTIONS": "the previous transaction is not yet complete",
        "UNSTABLE_OFFSET_COMMIT": "a transaction with these offsets is still open (KIP-447)",
        "STALE_MEMBER_EPOCH": "a request crossed a new assignment of the group (KIP-848)",
        "UNKNOWN_SUBSCRIPTION_ID": "the broker has changed its telemetry subscription (KIP-714)",
    }
)
"""Why each error is normal, by its name."""

NORMAL_IN_API: Final = MappingProxyType(
    {
        ("REPLICA_NOT_AVAILABLE", "Metadata"): "a replica is down; clients use the leader",
        # 13 is StaleLeaderEpochCode of brokers until 0.9 (kafka.common.ErrorMapping). Later brokers
        # never send it.
        ("NETWORK_EXCEPTION", "LeaderAndIsr"): "a broker until 0.9 already knows this leader",
        ("UNSUPPORTED_VERSION", "ApiVersions"): "the client retries an older version (KIP-511)",
        ("GROUP_ID_NOT_FOUND", "ConsumerGroupDescribe"): (
            "an admin client then sends DescribeGroups, for classic groups (KIP-848)"
        ),
    }
)
"""Why each error is normal in one API, by error and API. Either the client then sends another
request, which succeeds or has an error of its own, or the error has no effect."""

NORMAL_FOR_TOPICS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = MappingProxyType(
    {
        # A broker that needs one of these topics asks the controller to create it, again and again
        # until its metadata have the topic.
        ("TOPIC_ALREADY_EXISTS", "CreateTopics"): (
            "__consumer_offsets", "__transaction_state", "__share_group_state",
        ),
        # Since 0.10, the broker already knows this leader. An error of the whole request is for a
        # controller that was replaced.
        ("STALE_CONTROLLER_EPOCH", "LeaderAndIsr"): (),
    }
)  # fmt: skip
"""The topics for which an error is normal in one API, by error and API; empty: any topic."""

REQUEST_TIMEOUT_MS: Final = 30_000
"""Default of request.timeout.ms. A request that waits longer is not merely in flight."""

GROUP_TIMEOUT_MS: Final = 300_000
"""The same for JoinGroup and SyncGroup, which may wait for max.poll.interval.ms."""

SYN_TIMEOUT_MS: Final = 1000
"""The shortest time after which a client sends a SYN again (RFC 6298, section 2.1)."""


@cache
def group_barriers() -> tuple[str, ...]:
    """APIs whose latency ends when other members of the group act."""
    from dissector.protocol import registry

    return tuple(api.name for api in registry.all_apis() if api.is_group_barrier)


@cache
def long_polls() -> tuple[str, ...]:
    """APIs whose requests may wait for data, for max_wait_ms at most."""
    from dissector.protocol import registry

    return tuple(api.name for api in registry.all_apis() if api.is_long_poll)


@cache
def waiting_apis() -> frozenset[str]:
    """APIs whose requests wait at the broker by design: for data, or for members of a group."""
    return frozenset(group_barriers()).union(long_polls())


def are_normal(errors: pa.Table) -> pa.ChunkedArray:
    """Whether each row of the table `errors` is part of normal operation. In SQL:
    `analysis.sql.expressions.IS_NORMAL`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    error, api, topic = (errors[name] for name in ("error", "api", "topic"))
    are_expected = pc.is_in(error, pa.array(list(NORMAL_ERRORS)))
    for name, name_api in (*NORMAL_IN_API, *NORMAL_FOR_TOPICS):
        is_expected = pc.and_(pc.equal(error, name), pc.equal(api, name_api))
        if (topics := NORMAL_FOR_TOPICS.get((name, name_api))) is not None:
            is_for_topic = pc.is_in(topic, pa.array(topics)) if topics else pc.is_valid(topic)
            is_expected = pc.and_(is_expected, is_for_topic)
        are_expected = pc.or_(are_expected, pc.fill_null(is_expected, False))
    return are_expected

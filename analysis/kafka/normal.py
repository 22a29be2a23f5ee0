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

NORMAL_ERRORS: Final = (
    "MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "NOT_CONTROLLER", "NOT_LEADER_OR_FOLLOWER",
    "LEADER_NOT_AVAILABLE", "NEW_LEADER_ELECTED", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH",
    "FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH", "FETCH_SESSION_TOPIC_ID_ERROR",
    "OFFSET_MOVED_TO_TIERED_STORAGE", "CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT",
    "STALE_MEMBER_EPOCH", "UNKNOWN_SUBSCRIPTION_ID",
)  # fmt: skip
"""Errors that are normal in every API; `analysis.answers.errors` has the reasons."""

NORMAL_IN_API: Final = (
    # A replica is down; clients use the leader.
    ("REPLICA_NOT_AVAILABLE", "Metadata"),
    # A broker until 0.9 already knows this leader. Its 13 is StaleLeaderEpochCode
    # (kafka.common.ErrorMapping), which later brokers never send.
    ("NETWORK_EXCEPTION", "LeaderAndIsr"),
    ("UNSUPPORTED_VERSION", "ApiVersions"),
    ("GROUP_ID_NOT_FOUND", "ConsumerGroupDescribe"),
)
"""Errors that are normal in one API, with the API. Either the client then sends another request,
which succeeds or has an error of its own, or the error has no effect."""

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

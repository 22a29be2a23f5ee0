"""Clients that stop because of an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from analysis.diagnosis.case import Case
from analysis.sql.query import Row

FATAL_APIS: Final = (
    "SaslHandshake", "SaslAuthenticate", "FindCoordinator", "InitProducerId", "Produce",
    "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "JoinGroup", "SyncGroup",
    "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat",
)  # fmt: skip
"""APIs in which producers and consumers stop at an error that is not retriable. The exception of an
admin client is the result of one call, and often expected: a topic exists already."""

FATAL_ERRORS: Final = (
    "FENCED_INSTANCE_ID", "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED",
)  # fmt: skip
"""Errors at which a client stops in any API: another member has its group.instance.id, or an ACL is
missing. Producers and consumers learn from Metadata that they may not use a topic."""

REJOINED: Final = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_MEMBER_EPOCH")
"""Errors after which a member joins its group again, although they are not retriable."""

LAST_REQUESTS: Final = """
  select client_id, epoch_ns(coalesce(max(request_time) filter (
      api not in ('ApiVersions', 'SaslHandshake', 'SaslAuthenticate')), max(request_time)))
      as last_time,
    bool_and(closed is not null) as has_closed
  from exchanges join connections using (connection_id)
  where api not in ('LeaveGroup', 'PushTelemetry') and not (api in ('Fetch', 'OffsetCommit')
    and closed is not null and epoch_ns(last_time) - epoch_ns(request_time) < 1e9)
  group by client_id"""
"""SQL: the last request of each client, and whether it closed all connections. Some requests are
part of the close of a client: it commits offsets, ends its fetch sessions (KIP-227), leaves its
group, and sends its last metrics (KIP-714). A connection that it was opening at that time has no
further request."""

Ends: TypeAlias = "Mapping[str | None, tuple[int, int]]"
"""By client id: the time of the last request, and the latest time of an error at which the client
can have stopped."""


def ends_of(case: Case, silent_ms: float) -> Ends:
    """The end of each client. A client that keeps its connections has stopped if it is silent for
    `silent_ms` at the end of the capture."""
    last = case.last_message or 0
    silent_since = last - int(silent_ms * 1e6)
    return {
        row["client_id"]: (row["last_time"], last if row["has_closed"] else silent_since)
        for row in case.rows(LAST_REQUESTS)
        if row["last_time"] is not None  # else no request of the client was captured
    }


def is_fatal(row: Row, ends: Ends) -> bool:
    """Whether the client stopped at the error."""
    first, last = ends.get(row["client_id"], (1, 0))
    return (
        (row["api"] in FATAL_APIS or row["error"] in FATAL_ERRORS)
        and not row["retriable"]
        and not row["normal"]
        and row["error"] not in REJOINED
        and first <= row["last_time"] <= last
    )

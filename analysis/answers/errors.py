"""Errors: which codes came, for what and whom, since when, and whether the client may try again.

A row of the table `errors` is an error code anywhere in a response; here they are counted. These
belong to the normal operation of Kafka, so that `summary` does not list them as faults:

    MEMBER_ID_REQUIRED            the coordinator gives a new member its id (KIP-394)
    REBALANCE_IN_PROGRESS         the coordinator tells a member to join its group again
    COORDINATOR_LOAD_IN_PROGRESS  a coordinator reads its state after a start or a move
    COORDINATOR_NOT_AVAILABLE     the topic of the coordinator is being created or moved
    NOT_COORDINATOR               the coordinator moved, and clients look it up again
    NOT_CONTROLLER                the controller moved, and clients look it up again
    NOT_LEADER_OR_FOLLOWER        the leader moved, and clients ask for metadata
    LEADER_NOT_AVAILABLE          a leader is being elected, as for each new topic
    NEW_LEADER_ELECTED            a change of replicas was overtaken by an election
    FENCED_LEADER_EPOCH           the client does not know of an election yet (KIP-320)
    UNKNOWN_LEADER_EPOCH          the broker does not know of an election yet (KIP-320)
    FETCH_SESSION_ID_NOT_FOUND    the broker gave up a fetch session (KIP-227)
    INVALID_FETCH_SESSION_EPOCH   a fetch session begins again (KIP-227)
    CONCURRENT_TRANSACTIONS       the transaction before is still being completed
    UNSTABLE_OFFSET_COMMIT        a transaction with these offsets is not decided yet (KIP-447)
    STALE_MEMBER_EPOCH            a request crossed a new assignment of the group (KIP-848)
    UNKNOWN_SUBSCRIPTION_ID       the broker wants other telemetry now (KIP-714)
    UNSUPPORTED_VERSION           only of ApiVersions: the client asks in an older version (KIP-511)

One that does not stop is a fault all the same: `count`, `first_time` and `last_time` show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import counted, first_of, rows_by, shaped
from analysis.sql.query import Tables, asking
from dissector.tables import ERRORS, TIME, TableColumn

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: Final = (
    TableColumn("error_code", pa.int16(), "the code; the first where a group has several"),
    TableColumn("error", pa.string(), "its name"),
    TableColumn("retriable", pa.bool_(), "whether Kafka's clients try again"),
    TableColumn("count", pa.int64(), "how often it came"),
    TableColumn("responses", pa.int64(), "responses that have it"),
    TableColumn("clients", pa.int64(), "addresses of clients that got it"),
    TableColumn("partitions", pa.int64(), "partitions that it came for; 0 where for none"),
    TableColumn("first_time", TIME, "first of the responses"),
    TableColumn("last_time", TIME, "last of the responses"),
    TableColumn("first_packet", pa.int64(), "packet of the first response"),
    TableColumn("message", pa.string(), "first that a broker says beside it"),
)


def errors(
    tables: Tables, *, by: str | Sequence[str] = ("error", "api", "topic", "client_id")
) -> pd.DataFrame:
    """Error codes that are not 0, in groups; the most frequent first.

    `by`: columns of the table `errors` to group by, or broker, client, software; they come first in
    the result. Then `COLUMNS`, as far as they are not among them.
    Raises DissectorError for a column that does not exist.
    """
    query = counted(
        rows_by(_WITH_RESPONSE, ERRORS.schema.names, by),
        by,
        "count(*) desc, min((time, nth))",
        error_code="arg_min(error_code, (time, nth))",
        error="arg_min(error, (time, nth))",
        retriable="arg_min(retriable, (time, nth))",
        count="count(*)",
        responses="count(distinct response)",
        clients="count(distinct client_ip)",
        partitions="count(distinct topic || '-' || partition)",
        first_time="min(time)",
        last_time="max(time)",
        first_packet="arg_min(response, (time, nth))",
        message="arg_min(error_message, (time, nth))",
    )
    with asking(tables, ("errors", "exchanges", "connections")) as ask:
        return shaped(ask(query), COLUMNS, by)


_WITH_RESPONSE: Final = f"""(
  select errors.*, response_packet as response
  from errors
    left join {first_of("response_packet", "errors")} using (connection_id, correlation_id))"""
"""SQL: the errors, with the packet of their response."""

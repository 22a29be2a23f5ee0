"""Errors: which error codes were returned, for which topic and client, and since when.

    $ kafka-dissector errors captures/kafka-4-errors.pcap.zst --by client_id,error,topic | head -8

**How to read it.** A response may contain several error codes: `count` counts error codes, and
`responses` counts responses. After `retriable` errors, Kafka's clients repeat the request by
themselves. `normal` is the number of errors that are part of Kafka's normal operation. `summary`
does not list them as problems, and its `errors` columns, like that of `clients`, count the
responses with any other error. These errors are normal:

    MEMBER_ID_REQUIRED              the coordinator gives a new member its id (KIP-394)
    REBALANCE_IN_PROGRESS           the coordinator asks a member to join its group again
    COORDINATOR_LOAD_IN_PROGRESS    a coordinator loads its state after a start or a move
    COORDINATOR_NOT_AVAILABLE       the topic of the coordinator is being created or moved
    NOT_COORDINATOR                 the coordinator moved, and clients look it up again
    NOT_CONTROLLER                  the controller moved, and clients look it up again
    NOT_LEADER_OR_FOLLOWER          the leader moved, and clients request metadata
    LEADER_NOT_AVAILABLE            a leader is being elected, as for each new topic
    NEW_LEADER_ELECTED              a change of replicas was overtaken by an election
    FENCED_LEADER_EPOCH             the client does not know of an election yet (KIP-320)
    UNKNOWN_LEADER_EPOCH            the broker does not know of an election yet (KIP-320)
    FETCH_SESSION_ID_NOT_FOUND      the broker evicted a fetch session (KIP-227)
    INVALID_FETCH_SESSION_EPOCH     a fetch session restarts (KIP-227)
    FETCH_SESSION_TOPIC_ID_ERROR    a fetch session restarts with or without ids (KIP-516)
    OFFSET_MOVED_TO_TIERED_STORAGE  a follower continues from the remote tier (KIP-405)
    CONCURRENT_TRANSACTIONS         the previous transaction is not yet complete
    UNSTABLE_OFFSET_COMMIT          a transaction with these offsets is still open (KIP-447)
    STALE_MEMBER_EPOCH              a request crossed a new assignment of the group (KIP-848)
    UNKNOWN_SUBSCRIPTION_ID         the broker has changed its telemetry subscription (KIP-714)
    UNSUPPORTED_VERSION             only in ApiVersions: the client retries an older version
                                    (KIP-511)
    GROUP_ID_NOT_FOUND              only in ConsumerGroupDescribe: an admin client then sends
                                    DescribeGroups, for classic groups (KIP-848)
    REPLICA_NOT_AVAILABLE           only in Metadata: a replica is down, and clients use the leader
    STALE_CONTROLLER_EPOCH          only in LeaderAndIsr, for a partition: the broker already knows
                                    this leader
    NETWORK_EXCEPTION               only in LeaderAndIsr: the same, of brokers until 0.9
    TOPIC_ALREADY_EXISTS            only in CreateTopics of __consumer_offsets, __transaction_state
                                    and __share_group_state: each broker that needs one creates it

If such an error persists, it is a problem; see `first_time` and `last_time`.

**What to do.** `diagnose` has advice for each error. In short: for authorization, check the ACLs of
the principal; for an unknown topic, check its name and whether the client may create it; for
timeouts, read the log of the broker; for leaders, see `leadership`; for producers, see `producers`.

**How it is computed.** The table `errors` has a row for each error code other than 0, anywhere in a
response; this answer counts them. The message is that of the broker, if the response contains one.

**Limitations.** Clients that are refused before they send a request, for example by TLS, get no
error code: see `security`. Clients repeat requests after retriable errors, so one cause may result
in many rows.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Tables, answer, grouped_by, select
from analysis.columns import Column, first_and_last
from analysis.sql.expressions import EXCHANGE, IS_NORMAL, By, grouped, of_exchange, with_columns


@answer(
    question="Which errors were returned, to which client, for which topic, and since when?",
    place=3,
    tables=("errors", "exchanges", "connections"),
    options=(grouped_by("any column of errors, or broker, client, software, minute, 10s"),),
    rows="errors",
    columns=(
        Column("error_code", "int16", "error code; the first one if the row has several"),
        Column("error", "string", "name of the error code; error 12345 if it is unknown"),
        Column("retriable", "bool", "whether Kafka's clients retry the request"),
        Column("count", "int64", "number of errors"),
        Column("normal", "int64", "errors that are part of normal operation"),
        Column("responses", "int64", "responses that contain the error"),
        Column("clients", "int64", "number of client addresses that received it"),
        Column("partitions", "int64", "partitions with the error; 0 if it concerns none"),
        *first_and_last("response"),
        Column("first_packet", "int64", "packet of the first response"),
        Column("message", "string", "first error message that a broker sent with it"),
    ),
    essential="count",
    useful="normal first_time last_time retriable message",
    lists_problems=True,
)
def errors(tables: Tables, *, by: By = ("error", "api", "topic", "client_id")) -> ArrowTable:
    """Error codes other than 0, in groups; the most frequent first."""
    query = grouped(
        with_columns(_WITH_RESPONSE, by, "errors"),
        by,
        "count(*) desc, min((time, nth))",
        error_code="arg_min(error_code, (time, nth))",
        error="arg_min(error, (time, nth))",
        retriable="arg_min(retriable, (time, nth))",
        count="count(*)",
        normal=f"count(*) filter ({IS_NORMAL})",
        responses=f"count(distinct ({EXCHANGE}))",
        clients="count(distinct client_ip)",
        partitions="count(distinct topic || '-' || partition)",
        first_time="min(time)",
        last_time="max(time)",
        first_packet="arg_min(response, (time, nth))",
        message="arg_min(nullif(error_message, ''), (time, nth))",
    )
    return select(tables, query)


_WITH_RESPONSE: Final = f"""(
  select errors.* replace (coalesce(error, 'error ' || error_code) as error),
    response_packet as response
  from errors
    left join {of_exchange("response_packet", "response_time", "errors")} using ({EXCHANGE}))"""
"""SQL: the errors, each with the packet of its response."""

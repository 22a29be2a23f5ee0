"""Unanswered: which requests never got a response, and why, as far as a capture shows it.

    $ kafka-dissector unanswered captures/librdkafka-mock-errors.pcap

**How to read it.** `reason` is one of:

    loss         bytes of the connection are missing, possibly with the response
    one_sided    the capture has no packet from the broker on this connection
    reset        the connection was reset
    timeout      the client closed the connection after waiting for a timeout
    closed       either side closed the connection earlier, for example to shut down
    capture_end  the connection was open when the capture ended

**What to do.** For timeout, find out what the broker did during that time: look at its log, its
disks and its garbage collection; a larger request.timeout.ms only hides the problem. For reset,
look for firewalls and load balancers that drop idle connections (connections.max.idle.ms). Loss and
one_sided are flaws of the capture. The other reasons are usually harmless.

**How it is computed.** A request without a response counts when its connection has ended, or at the
end of the capture. A Produce with acks=0 gets no response and is omitted.

**Limitations.** If a client waited for seconds before the connection was closed, the request counts
as a timeout. The client may have closed it for another reason, or the broker because it stopped.
Later requests on the connection count as closed if they waited for less than a second. The wait
ends with the last packet of the connection, so a reset long after the FIN lengthens it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from analysis.answers import ArrowTable, Tables, answer, grouped_by, select
from analysis.columns import Column, first_and_last
from analysis.kafka.normal import group_barriers
from analysis.sql.expressions import By, grouped, literals, ms_between, with_columns

TIMEOUT_MS: Final = 1000
"""The shortest wait that counts as a timeout: clients have timeouts of seconds."""


@answer(
    question="Which requests got no response, and why?",
    place=4,
    tables=("exchanges", "connections"),
    options=(
        grouped_by(
            "reason, any column of exchanges, or broker, client, software, topic, minute, 10s"
        ),
    ),
    rows="unanswered requests",
    columns=(
        Column("reason", "string", "loss, one_sided, reset, timeout, closed or capture_end"),
        Column("requests", "int64", "requests without a response"),
        Column("connections", "int64", "connections of these requests"),
        Column("longest_ms", "double", "longest wait, until the connection's last packet", "ms"),
        *first_and_last("request"),
        Column("first_packet", "int64", "packet of the first request"),
    ),
    essential="requests longest_ms",
    useful="first_packet first_time last_time",
    lists_problems=True,
)
def unanswered(tables: Tables, *, by: By = ("reason", "api", "client_id", "broker")) -> ArrowTable:
    """Requests without a response, in groups; the largest first."""
    query = grouped(
        with_columns(unanswered_requests(), by, "exchanges", "reason", "wait_ms"),
        by,
        "count(*) desc, min((request_time, nth))",
        reason="arg_min(reason, (request_time, nth))",
        requests="count(*)",
        connections="count(distinct connection_id)",
        longest_ms="max(wait_ms)",
        first_time="min(request_time)",
        last_time="max(request_time)",
        first_packet="arg_min(request_packet, (request_time, nth))",
    )
    return select(tables, query)


@cache
def unanswered_requests() -> str:
    """SQL: requests without a response, with the reason, and the time that the client waited."""
    return f"""(
  select exchanges.*, {ms_between("request_end_time", "last_time")} as wait_ms,
    case when coalesce(client_lost_bytes, 0) + coalesce(broker_lost_bytes, 0) > 0 then 'loss'
      when coalesce(broker_packets, 0) = 0 then 'one_sided'
      when closed = 'rst' then 'reset'
      when closed = 'fin' and wait_ms >= greatest(coalesce(max_wait_ms, 0), {TIMEOUT_MS})
        and not coalesce(api in {literals(group_barriers())}, false) then 'timeout'
      when closed = 'fin' then 'closed'
      else 'capture_end' end as reason
  from exchanges left join connections using (connection_id) where status = 'unanswered')"""

"""Zero windows: a receiver does not read its data, and TCP stops the sender.

A host with a zero window has a full receive buffer: its program reads more slowly than the data
arrives. This program is the bottleneck, not the network or the sender. A broker does not read from
a client that it throttles, which the rule `throttling` reports. Nor does it read a request above
`socket.request.max.bytes`, which `no_response` reports, nor anything while it is paused, which
`slow_broker` reports.

A broker reads the next request of a connection when it has responded to the one before. If Produce
requests wait mostly for earlier ones, those in flight fill its buffer, however quickly it reads:
the finding is only a note.

The tables count these packets by connection, so the time of a finding is that of the connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.pauses import paused_brokers
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.rules.no_response import OVERSIZED
from analysis.diagnosis.words import Advice, capital, client, matching, of_client
from analysis.sql.expressions import endpoint, sum_of_ms
from analysis.sql.latency_breakdown import exchanges_with_parts
from analysis.sql.query import Row

_REFERENCE: Final = "RFC 9293, section 3.8.6.1; Kafka documentation: Monitoring"
_SIDES: Final = (
    ("client_zero_windows", "does not read its responses fast enough", Advice(
        "the client processes records on the thread that reads them, collects garbage, or lacks "
        "CPU",
        "client", "receive.buffer.bytes",
        "Profile the client. A larger receive buffer only helps against short peaks.",
        _REFERENCE,
    )),
    ("broker_zero_windows", "sends faster than its broker reads", Advice(
        "the network threads of the broker are busy, or its request queue is full",
        "broker", "num.network.threads",
        "Look at the broker's NetworkProcessorAvgIdlePercent and RequestQueueSize. Add network or "
        "I/O threads if they have no idle time.",
        _REFERENCE,
    )),
)  # fmt: skip

_FOLLOWER: Final = Advice(
    "the broker that follows writes slowly to its disk, collects garbage, or lacks CPU",
    "broker", "replica.socket.receive.buffer.bytes",
    "Look at the disk, the CPU and the garbage collection of this broker. A larger receive buffer "
    "only helps against short peaks.",
    _REFERENCE,
)  # fmt: skip

_IN_FLIGHT: Final = Advice(
    "a broker reads the next request of a connection when it has responded to the one before, and "
    "the producer has more in flight than its receive buffer holds",
    "broker", None,
    "Find out why responses take long: latency --by broker,api shows slow brokers, and replication "
    "late followers. The zero windows do no harm.",
    _REFERENCE,
)  # fmt: skip

PIPELINED: Final = f"""
  select client_id, {endpoint("broker")} as broker from {exchanges_with_parts()}
  where api = 'Produce' group by all
  having {sum_of_ms("queue_ms")} > {sum_of_ms("net_ms")}"""
"""SQL: producers whose requests wait for earlier ones longer than for the broker."""

REFUSED: Final = f"""
  select client_id, broker, coalesce(sum(broker_zero_windows), 0) as zero_windows
  from (select distinct connection_id, client_id, broker from {OVERSIZED})
    join connections using (connection_id) group by all"""
"""SQL: zero windows of brokers on connections with a request that is too large."""


@rule(
    question="Does a client or broker stop its sender with a zero window?",
    place=4,
    rests_on="network throttle unanswered partitions latency",
    thresholds=(
        Threshold("packets", 5, "packets", "One full buffer is a short peak. Several in one "
                  "capture mean that the receiver is regularly slower than the sender."),
    ),
)  # fmt: skip
def zero_windows(case: Case, limits: Limits) -> Iterator[Finding]:
    """Connections with zero windows, by the answer `network`."""
    throttled = {row["client_id"] for row in case.answer("throttle --by client_id")}
    for row in case.answer("network --by client_id,broker"):
        for column, does, advice in _SIDES:
            if row[column] < limits["packets"]:
                continue
            if advice.side == "broker" and (
                row["client_id"] in throttled
                or row["broker"] in paused_brokers(case)
                or row[column] - _refused_packets(case, row) < limits["packets"]
            ):
                continue
            name = row["client_id"]
            if advice.side == "client" and name in case.followers:
                advice = _FOLLOWER
            is_full = advice.side == "broker" and bool(
                matching(case.rows(PIPELINED), row, "client_id broker")
            )
            yield Finding(
                severity="note" if is_full else "warning",
                **of_client(row, f"client_id broker {column} packets"),
                sentence=f"{capital(client(name))} {does}",
                evidence=f"The {advice.side} advertises a window of 0 in {row[column]:,} of "
                f"{row['packets']:,} packets between this client and {row['broker']}. "
                "The times are those of the connections, not of these packets.",
                command="network --by client_id,broker",
                requests=row["requests"],
                **case.span_of_connections([row], f"{column} > 0"),
                **(_IN_FLIGHT if is_full else advice)._asdict(),
            )


def _refused_packets(case: Case, row: Row) -> int:
    """Zero windows of the broker that large requests explain."""
    refused = matching(case.rows(REFUSED), row, "client_id broker")
    return sum(each["zero_windows"] for each in refused)

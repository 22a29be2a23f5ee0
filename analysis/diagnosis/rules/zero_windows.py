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
from analysis.diagnosis.causes.transfers import ZERO_WINDOWS
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.rules.no_response import OVERSIZED
from analysis.diagnosis.rules.retransmissions import REPEATED_ENDS
from analysis.diagnosis.words import Advice, by_end, capital, ends, of_ends
from analysis.sql.expressions import endpoint, sum_of_ms
from analysis.sql.latency_breakdown import exchanges_with_parts
from analysis.sql.query import Row

COMMAND: Final = "network --by client_id,broker"

_REFERENCE: Final = "RFC 9293, section 3.8.6.1; Kafka documentation: Monitoring"
_CLIENT: Final = Advice(
    "the client processes records on the thread that reads them, collects garbage, or lacks CPU",
    "client", "receive.buffer.bytes",
    "Profile the client. A larger receive buffer only helps against short peaks.",
    _REFERENCE,
)  # fmt: skip

_BROKER: Final = Advice(
    "the network threads of the broker are busy, or its request queue is full",
    "broker", "num.network.threads",
    "Look at the broker's NetworkProcessorAvgIdlePercent and RequestQueueSize. Add network or I/O "
    "threads if they have no idle time.",
    _REFERENCE,
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
        Threshold("packets", ZERO_WINDOWS, "packets", "One full buffer is a short peak. Several in "
                  "one capture mean that the receiver is regularly slower than the sender."),
    ),
)  # fmt: skip
def zero_windows(case: Case, limits: Limits) -> Iterator[Finding]:
    """Connections with zero windows, by the answer `network`."""
    alike: dict[tuple[str, Advice], list[Row]] = {}
    for row in case.answer(COMMAND):
        if max(row["client_zero_windows"], row["broker_zero_windows"]) < limits["packets"]:
            continue
        packets = limits["packets"] * _copies(case, row)
        if row["client_zero_windows"] >= packets:
            advice = _FOLLOWER if row["client_id"] in case.followers else _CLIENT
            alike.setdefault(("client_zero_windows", advice), []).append(row)
        if _is_slow_broker(case, row, packets):
            is_full = case.matching(PIPELINED, row, "client_id broker")
            advice = _IN_FLIGHT if is_full else _BROKER
            alike.setdefault(("broker_zero_windows", advice), []).append(row)
    for (column, advice), rows in alike.items():
        for group in by_end(rows, column):
            yield _finding(case, group, column, advice)


def _is_slow_broker(case: Case, row: Row, packets: float) -> bool:
    """Whether a broker has zero windows that no other rule explains."""
    throttled = {each["client_id"] for each in case.answer("throttle --by client_id")}
    return (
        row["broker_zero_windows"] >= packets
        and row["client_id"] not in throttled
        and row["broker"] not in paused_brokers(case)
        and row["broker_zero_windows"] - _refused_packets(case, row) >= packets
    )


def _finding(case: Case, rows: list[Row], column: str, advice: Advice) -> Finding:
    """A finding for one client or broker; the first row has the most zero windows."""
    names, brokers = ends(rows)
    is_client, row = column == "client_zero_windows", rows[0]
    receiver = "follower" if advice is _FOLLOWER else "client" if is_client else "broker"
    have_one_client, have_one_broker = (
        len({row[end] for row in rows}) == 1 for end in ("client_id", "broker")
    )
    if is_client:
        does = "does" if have_one_client else "do"
        does += f" not read the responses of {brokers} fast enough"
    else:
        does = "sends" if have_one_client else "send"
        does += f" faster than {brokers} {'reads' if have_one_broker else 'read'}"
    is_one = have_one_client if is_client else have_one_broker
    zero_windows, packets = (sum(row[name] for row in rows) for name in (column, "packets"))
    most, its_broker = ends(rows[:1])
    return Finding(
        severity="note" if advice is _IN_FLIGHT else "warning",
        **of_ends(rows, f"client_id broker {column} packets"),
        sentence=f"{capital(names)} {does}",
        evidence=f"The {receiver + ' advertises' if is_one else receiver + 's advertise'} a window "
        f"of 0 in {zero_windows:,} of {packets:,} packets"
        + (f". Most: {row[column]:,} between {most} and {its_broker}." if len(rows) > 1
           else f" between this client and {its_broker}.")
        + " The times are those of the connections, not of these packets.",
        command=COMMAND,
        requests=sum(row["requests"] for row in rows),
        **case.span_of_connections(rows, f"{column} > 0"),
        **advice._asdict(),
    )  # fmt: skip


def _copies(case: Case, row: Row) -> float:
    """How often the capture contains each packet between a client and a broker, at most."""
    repeated = case.matching(REPEATED_ENDS, row, "client_id broker")
    return max((each["copies"] for each in repeated), default=1)


def _refused_packets(case: Case, row: Row) -> int:
    """Zero windows of the broker that large requests explain."""
    refused = case.matching(REFUSED, row, "client_id broker")
    return sum(each["zero_windows"] for each in refused)

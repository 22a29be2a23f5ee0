"""Retransmissions: TCP sends packets again, and the receiver waits for them.

A packet is retransmitted if it was lost behind the capture point, if its acknowledgement was lost,
or if the receiver acknowledges late. It delays all data behind it by at least a round trip, and by
200 ms or more if the sender has to wait for a timeout.

The tables count these packets by connection, so the time of a finding is that of the connections.
Clients and brokers whose packets were captured more than once are left to `coverage`, and packets
that are retransmitted in vain, because a device on the path drops them, to `no_response`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from analysis.answers.network import LINKS
from analysis.answers.quality import REPEATED
from analysis.diagnosis.case import Case
from analysis.diagnosis.dropped import dropped_connections
from analysis.diagnosis.incomplete import incomplete_responses
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import by_end, ends, ms, of_ends, percent, rows_by, share, verb
from analysis.sql.expressions import endpoint
from analysis.sql.query import Row

COMMAND: Final = "network --by client_id,broker"

REPEATED_ENDS: Final = f"""
  select distinct client_id, {endpoint("broker")} as broker
  from {LINKS} semi join {REPEATED} using (connection_id)"""
"""SQL: the client ids and brokers of connections that were captured more than once."""


@rule(
    question="Does TCP retransmit packets?",
    place=3,
    rests_on="network",
    thresholds=(
        Threshold("percent", 1, "%", "Data centre networks lose less than 0.01 %. At 1 %, one in "
                  "ten requests of ten packets each loses a packet."),
        Threshold("retransmitted", 5, "packets", "Single retransmissions also occur without loss."),
    ),
)  # fmt: skip
def retransmissions(case: Case, limits: Limits) -> Iterator[Finding]:
    """Connections with retransmissions, by the answer `network`."""
    rows = [
        row for row in case.answer(COMMAND)
        if row["retransmitted"] >= limits["retransmitted"]
        and (row["retransmitted_percent"] or 0) >= limits["percent"]
    ]  # fmt: skip
    vain = _in_vain(case) if rows else Counter()
    rows = [
        row for row in rows
        if row["retransmitted"] - vain[row["client_id"], row["broker"]] >= limits["retransmitted"]
    ]  # fmt: skip
    repeated = rows_by(case.rows(REPEATED_ENDS) if rows else (), "client_id", "broker")
    rows = [row for row in rows if (row["client_id"], row["broker"]) not in repeated]
    for group in by_end(rows, "retransmitted"):
        yield _finding(group, case.span_of_connections(group, "retransmitted > 0"))


def _in_vain(case: Case) -> Counter[tuple[str | None, str]]:
    """Packets that a device on the path drops each time, by client id and broker."""
    packets: Counter[tuple[str | None, str]] = Counter()
    for row in dropped_connections(case):
        packets[row["client_id"], row["broker"]] += row["client_retransmitted"]
    for row in incomplete_responses(case):
        if row["is_blocked"]:
            packets[row["client_id"], row["broker"]] += row["retransmitted"]
    return packets


def _finding(rows: list[Row], span: dict[str, Any]) -> Finding:
    """A finding for the connections of one client, or of one broker."""
    worst, (name, broker), (most, its_broker) = rows[0], ends(rows), ends(rows[:1])
    count, packets = (sum(row[name] for row in rows) for name in ("retransmitted", "packets"))
    return Finding(
        severity="warning",
        **of_ends(rows, "client_id broker retransmitted retransmitted_percent packets"),
        sentence=f"TCP retransmits {percent(share(count, packets))} of the packets between {name} "
        f"and {broker}",
        evidence=f"{count:,} of {packets:,} packets {verb(count, 'were')} retransmitted, "
        f"{sum(row['out_of_order'] for row in rows):,} arrived out of order. The times "
        "are those of the connections, not of these packets."
        + f" Most: {most} and {its_broker}."
        * (len(rows) > 1)
        + f" The latency is {ms(worst['latency_p50_ms'])} (median) and "
        f"{ms(worst['latency_p99_ms'])} (0.99 quantile)." * (worst["latency_p50_ms"] is not None),
        cause="a congested or faulty link, a full buffer of a host or switch, or a receiver "
        "that acknowledges late because it has no CPU",
        side="network",
        change="Compare with a capture at the other end to find the side of the loss. Look at "
        "the error and drop counters of interfaces (ip -s link) on the path.",
        reference="RFC 9293, section 3.8.1",
        command=COMMAND,
        # At most so many had to wait.
        requests=sum(min(row["retransmitted"], row["requests"]) for row in rows),
        **span,
    )

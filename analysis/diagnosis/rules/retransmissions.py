"""Retransmissions: TCP sends packets again, and the receiver waits for them.

A packet is retransmitted if it was lost behind the capture point, if its acknowledgement was lost,
or if the receiver acknowledges late. It delays all data behind it by at least a round trip, and by
200 ms or more if the sender has to wait for a timeout.
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import NETWORK, WARNING, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import client, ms, of_client, percent, verb


@rule(
    question="Does TCP retransmit packets?",
    place=3,
    rests_on="network",
    thresholds=(
        Threshold(
            "percent", 1, "%", "Data centre networks lose less than 0.01 %. At 1 %, one in ten "
            "requests of ten packets each loses a packet."
        ),
        Threshold("retransmitted", 5, "packets", "Single retransmissions also occur without loss."),
    ),
)  # fmt: skip
def retransmissions(case: Case, limits: Limits) -> Iterator[Finding]:
    """Connections with retransmissions, by the answer `network`."""
    for row in case.answer("network --by client_id,broker"):
        if (
            row["retransmitted"] < limits["retransmitted"]
            or (row["retransmitted_percent"] or 0) < limits["percent"]
        ):
            continue
        name, broker = row["client_id"], row["broker"]
        yield Finding(
            severity=WARNING,
            **of_client(row, "client_id broker retransmitted retransmitted_percent packets"),
            sentence=f"TCP retransmits {percent(row['retransmitted_percent'])} of the packets "
            f"between {client(name)} and {broker}",
            evidence=f"{row['retransmitted']:,} of {row['packets']:,} packets "
            f"{verb(row['retransmitted'], 'were')} retransmitted, "
            f"{row['out_of_order']:,} arrived out of order."
            + f" The latency is {ms(row['latency_p50_ms'])} (median) and "
            f"{ms(row['latency_p99_ms'])} (0.99 quantile)." * (row["latency_p50_ms"] is not None),
            cause="a congested or faulty link, a full buffer of a host or switch, or a receiver "
            "that acknowledges late because it has no CPU",
            side=NETWORK,
            change="Compare with a capture at the other end to find the side of the loss. Look at "
            "the error and drop counters of interfaces (ip -s link) on the path. If the capture "
            "was taken on several interfaces (-i any), it may contain packets twice: capture on "
            "one.",
            reference="RFC 9293, section 3.8.1",
            command="network --by client_id,broker",
            requests=min(row["retransmitted"], row["requests"]),  # at most so many had to wait
        )

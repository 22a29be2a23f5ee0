"""Retransmissions: TCP sends packets again, and the receiver waits for them.

A packet is retransmitted if it was lost, if its acknowledgement was lost, or if the receiver
acknowledges late. It delays all data behind it by at least a round trip, and by 200 ms or more if
the sender has to wait for a timeout. The capture contains the packet twice if it was lost behind
the capture point. If it was lost before, the packet is captured after later ones, and messages wait
for it longer than a round trip.

The tables count these packets by connection, so the time of a finding is that of the connections.
If no message comes back for seconds, the path was interrupted, or the other host was down. Programs
on one host are not evaluated: their packets are not lost, but retransmitted if the host is short of
CPU time.

Other rules report retransmissions that do not indicate a lossy network. `coverage` reports packets
that were captured more than once. `no_response` reports packets that are retransmitted in vain
because a device on the path drops them. `slow_broker` reports a broker that sends no response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from analysis.answers.network import LINKS
from analysis.answers.quality import REPEATED
from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.dropped import LARGE, LEAST, dropped_connections
from analysis.diagnosis.causes.incomplete import incomplete_responses
from analysis.diagnosis.causes.interrupted import interrupted_directions, interrupted_finding
from analysis.diagnosis.causes.late_packets import is_many, lossy_directions
from analysis.diagnosis.causes.pauses import paused_brokers
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import (
    by_end,
    cells,
    ends,
    ms,
    of_ends,
    percent,
    rows_by,
    share,
    verb,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint
from analysis.sql.query import Row

COMMAND: Final = "network --by client_id,broker"
PAIR: Final = "client_id broker"
NUMBERS: Final = f"{PAIR} retransmitted retransmitted_percent out_of_order"
"""Columns of the answer for the evidence."""

REPEATED_ENDS: Final = f"""
  select client_id, {endpoint("broker")} as broker, max(copies) as copies
  from {LINKS} join {REPEATED} using (connection_id) group by all"""
"""SQL: the client ids and brokers of connections that were captured more than once, and how often
each packet was captured, at most."""


@rule(
    question="Does TCP retransmit packets?",
    place=3,
    rests_on="network exchanges",
    thresholds=(
        Threshold("percent", 1, "%", "Share of the packets in one direction. Data centre networks "
                  "lose less than 0.01 %. At 1 %, one in ten requests of ten packets each loses a "
                  "packet."),
        Threshold("retransmitted", 5, "packets", "Single retransmissions also occur without loss."),
        Threshold("delayed", 5, "messages", "Messages that wait longer than a round trip for a "
                  "packet that arrives after later ones. Single messages also have other delays."),
        Threshold("delayed_percent", 25, "%", "Number of these messages as a share of these "
                  "packets. If the network reorders packets, most of them are earlier."),
    ),
)  # fmt: skip
def retransmissions(case: Case, limits: Limits) -> Iterator[Finding]:
    """Directions of connections with retransmissions, by the answer `network`."""
    is_lossy = any(
        row["retransmitted"] + row["out_of_order"] >= limits["retransmitted"]
        for row in case.answer(COMMAND)
    )
    directions = lossy_directions(case, limits) if is_lossy else []
    vain = _in_vain(case) if directions else Counter()
    blocked = _blocked_paths(case) if directions else set()
    interrupted = interrupted_directions(case) if directions else {}
    repeated = rows_by(case.rows(REPEATED_ENDS) if directions else (), "client_id", "broker")
    lossy, silent = [], []
    for row in directions:
        end = row["client_id"], row["broker"], row["sender"]
        silence = interrupted.get(end)
        # Those at the end of the capture look like lost ones: no connection works afterwards.
        least = max(limits["retransmitted"], vain[end])
        if end[:2] in repeated or row["sent_again"] - vain[end] < least:
            continue
        if any((host, row["broker"]) in blocked for host in case.addresses_of(row["client_id"])):
            continue
        if silence is None or is_many(row, row["sent_again"] - silence["resent"], limits):
            lossy.append(row)
        elif row["sender"] == "broker" or row["broker"] not in paused_brokers(case):
            silent.append(row | silence)
    for group in by_end(lossy, "sent_again"):
        counted_packets = "retransmitted + out_of_order" if _has_lost(group) else "retransmitted"
        span = case.span_of_connections(group, f"{counted_packets} > 0")
        yield _finding(case, group, span)
    for group in by_end(silent, "sent_again"):
        (link,) = case.matching(COMMAND, group[0], PAIR)
        yield interrupted_finding(group, cells(link, NUMBERS), COMMAND)


def _in_vain(case: Case) -> Counter[tuple[str | None, str, str]]:
    """Packets that a device on the path drops each time, by client id, broker and sender."""
    packets: Counter[tuple[str | None, str, str]] = Counter()
    for row in dropped_connections(case):
        packets[row["client_id"], row["broker"], "client"] += row["client_retransmitted"]
    for row in incomplete_responses(case):
        if row["is_blocked"]:
            packets[row["client_id"], row["broker"], "broker"] += row["retransmitted"]
    return packets


def _blocked_paths(case: Case) -> set[tuple[str, str]]:
    """Hosts of clients, and brokers, between which large packets are dropped: of any client, and in
    both directions."""
    large = [row for row in dropped_connections(case) if row["cause"] == LARGE]
    return {
        (host, row["broker"])
        for row in (large if len(large) >= LEAST else ())
        for host in case.addresses_of(row["client_id"])
    }


def _has_lost(rows: list[Row]) -> bool:
    return any(row["lost"] for row in rows)


def _finding(case: Case, rows: list[Row], span: dict[str, Any]) -> Finding:
    """A finding for the connections of one client, or of one broker.

    `rows`: of `lossy_directions`.
    """
    (link,) = case.matching(COMMAND, rows[0], PAIR)
    (name, broker), (most, its_broker) = ends(rows), ends(rows[:1])
    count, packets = (sum(row[name] for row in rows) for name in ("sent_again", "packets"))
    senders = {row["sender"] for row in rows}
    path = {"client": f"from {name} to {broker}", "broker": f"from {broker} to {name}"}
    return Finding(
        severity="warning",
        **of_ends(rows, PAIR) | {"numbers": cells(link, NUMBERS)},
        sentence=f"TCP retransmits {percent(share(count, packets))} of the packets "
        + (path[senders.pop()] if len(senders) == 1 else f"between {name} and {broker}"),
        evidence=f"{count:,} of {packets:,} packets {verb(count, 'were')} retransmitted."
        + _lost_evidence(rows)
        + " The times are those of the connections, not of these packets."
        + f" Most: {most} and {its_broker}." * (len(rows) > 1)
        + f" The latency is {ms(link['latency_p50_ms'])} (median) and "
        f"{ms(link['latency_p99_ms'])} (0.99 quantile)." * (link["latency_p50_ms"] is not None),
        cause="a congested or faulty link, a full buffer of a host or switch, or a receiver "
        "that acknowledges late because it has no CPU",
        side="network",
        change="Compare with a capture at the other end to find the side of the loss. Look at "
        "the error and drop counters of interfaces (ip -s link) on the path.",
        reference="RFC 9293, section 3.8.1",
        command=COMMAND,
        requests=_most_requests(case, rows),
        **span,
    )


def _most_requests(case: Case, rows: list[Row]) -> int:
    """The number of requests that had to wait, at most."""
    return sum(
        min(sum(row["sent_again"] for row in directions), link["requests"])
        for directions in rows_by(rows, *PAIR.split()).values()
        for link in case.matching(COMMAND, directions[0], PAIR)
    )


def _lost_evidence(rows: list[Row]) -> str:
    """A sentence about packets that were lost before the capture point."""
    if not _has_lost(rows):
        late = sum(row["late"] for row in rows)
        return f" {late:,} arrived out of order." if late else ""
    lost, delayed = (sum(row[name] for row in rows) for name in ("lost", "delayed"))
    longest_ms = max(row["longest_ms"] for row in rows if row["lost"])
    return (
        f" {lost:,} of them arrived after later ones, and {counted(delayed, 'message')} waited for "
        f"them longer than a round trip, up to {ms(longest_ms)}: they were lost between their "
        "sender and the capture point."
    )

"""Distance and limits: a round trip is most of a client's wait, or a transfer most of its time.

The network's share is the median share of the round trip in the time that a client waits for a
response, excluding long polls and the queue of its connection. A long round trip is due to
distance, or to a proxy, a VPN or a full queue on the path. A round trip that is 35 ms longer than a
handshake, or 10 ms longer than two, is ignored, because one end did not acknowledge at once.

A round trip has grown if no response is faster from then on.

If a link is at its limit, requests or responses take long from their first byte to their last,
which no latency contains. `zero_windows` reports receivers that read slowly. Packets of other
clients between the same hosts wait behind these transfers, which is part of the same finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from analysis.answers.network import LINKS
from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.grown_round_trips import grown_finding, grown_round_trips
from analysis.diagnosis.causes.transfers import slow_transfers, transfer_finding
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import Advice, by_end, ends, ms, of_ends, percent
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint
from analysis.sql.query import Row
from analysis.sql.round_trips import longest_rtt_ms


@rule(
    question="Does the network take most of the time?",
    place=2,
    rests_on="network exchanges",
    thresholds=(
        Threshold("percent", 50, "%", "The broker causes less than half of the wait."),
        Threshold("rtt_ms", 10, "ms", "A round trip takes less than 1 ms in a data centre, and 1 "
                  "to 3 ms between zones of a cloud region. Longer ones leave the region or pass a "
                  "full queue."),
        Threshold("requests", 20, "requests", "Smallest sample for a median."),
        Threshold("transfer_percent", 50, "%", "Share of the time of a connection in which it "
                  "transfers messages of one direction. Otherwise, the link is idle most of the "
                  "time, and its limit is not the cause."),
        Threshold("transfer_ms", 5000, "ms", "Smallest total of these transfers: a consumer that "
                  "starts may read a backlog for some seconds."),
        Threshold("transfer_rate", 10, "MB/s", "Largest rate of these transfers: the clients of a "
                  "data centre have 1 Gbit/s or more, which is 125 MB/s."),
    ),
)  # fmt: skip
def network_time(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients with a long round trip, by the answer `network`, and those with slow transfers."""
    rows = [
        row for row in case.answer("network --by client_id,broker")
        if row["requests"] >= limits["requests"]
        and row["network_percent"] is not None and row["network_percent"] >= limits["percent"]
        and row["rtt_ms"] is not None and row["rtt_ms"] >= limits["rtt_ms"]
        and not _is_delayed(row) and _measured(case, row) >= limits["requests"]
    ]  # fmt: skip
    transfers = slow_transfers(case, limits)
    behind = [
        [row for row in rows if _is_behind(case, row, transfer, limits["rtt_ms"])]
        for transfer in transfers
    ]
    distant = [row for row in rows if not any(row in each for each in behind)]
    for group in by_end(distant, "rtt_ms"):
        yield _finding(
            case, group, case.span_of_connections(group, f"rtt_ms >= {limits['rtt_ms']}")
        )
    if grown := grown_round_trips(case):
        yield grown_finding(grown)
    for transfer, waiting in zip(transfers, behind, strict=True):
        yield transfer_finding(case, transfer, waiting)


def _is_behind(case: Case, row: Row, transfer: Row, rtt_ms: float) -> bool:
    """Whether the round trip of a client is long only because its packets wait behind a transfer of
    another client: between the same hosts, that of its handshakes is short."""
    handshake = row["handshake_rtt_ms"]
    return (
        handshake is not None and handshake < rtt_ms
        and row["client_id"] != transfer["client_id"] and row["broker"] == transfer["broker"]
        and not case.addresses_of(row["client_id"]).isdisjoint(
            case.addresses_of(transfer["client_id"])
        )
    )  # fmt: skip


MEASURED: Final = f"""
  select links.client_id, {endpoint("links.broker")} as broker, count(*) as requests
  from exchanges join {LINKS} as links using (connection_id)
  where rtt_ms is not null and status = 'answered' group by all"""
"""SQL: requests of each client to each broker of which the round trip is known: a connection that
began before the capture, and has few packets, does not show it."""

WRITERS: Final = """
  select client_id from exchanges group by client_id
  having bool_or(api = 'Produce') and not bool_or(api in ('Fetch', 'ShareFetch'))"""
"""SQL: clients that produce and do not consume."""

_FAR: Final = Advice(
    "client and broker are far apart, or their path has a slow link or proxy",
    "network", "client.rack",
    "Run the client near its broker. If it cannot move, send fewer and larger requests (linger.ms, "
    "batch.size, fetch.min.bytes). With client.rack and the broker's replica.selector.class, a "
    "consumer reads from the nearest replica.",
    "KIP-392",
)  # fmt: skip
_FAR_WRITER: Final = _FAR._replace(
    setting="batch.size",
    change="Run the client near its broker. If it cannot move, send fewer and larger requests "
    "(linger.ms, batch.size), and several at a time (max.in.flight.requests.per.connection, 5 by "
    "default).",
    reference="Kafka documentation: Producer Configs",
)


def _finding(case: Case, rows: list[Row], span: dict[str, Any]) -> Finding:
    """A finding for the connections of one client, or of one broker."""
    is_writer = all(case.matching(WRITERS, each, "client_id") for each in rows)
    row, (name, broker), (farthest, its_broker) = rows[0], ends(rows), ends(rows[:1])
    return Finding(
        severity="warning",
        **of_ends(rows, "client_id broker rtt_ms network_percent broker_p50_ms requests"),
        sentence=f"The network takes most of the wait of {name}: a round trip to {broker} takes "
        + "up to " * (len(rows) > 1)
        + ms(row["rtt_ms"]),
        evidence=f"Longest: {farthest} and {its_broker}. "
        * (len(rows) > 1)
        + f"The round trip is {percent(row['network_percent'])} of the client's wait "
        f"(median of {counted(row['requests'], 'request')}). The broker takes "
        f"{ms(row['broker_p50_ms'])} (median). Round trip from the capture point to the client "
        f"{ms(row['client_rtt_ms'])}, to the broker {ms(row['broker_rtt_ms'])}.",
        command="network --by client_id,broker",
        requests=sum(row["requests"] for row in rows),
        **span,
        **(_FAR_WRITER if is_writer else _FAR)._asdict(),
    )


def _measured(case: Case, row: Row) -> int:
    """The number of requests of a client to a broker on connections with a round trip."""
    return sum(each["requests"] for each in case.matching(MEASURED, row, "client_id broker"))


def _is_delayed(row: Row) -> bool:
    """Whether the round trip, the sum of two, is too long for the handshakes: an end was busy."""
    handshake = row["handshake_rtt_ms"]
    return handshake is not None and row["rtt_ms"] > longest_rtt_ms(handshake)

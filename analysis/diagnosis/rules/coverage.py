"""Coverage: what the capture cannot show, so that the absence of a finding proves nothing.

Encrypted connections, connections with only one direction, lost bytes, truncated packets and
unknown protocols hide requests from all other rules. So do files that could not be read completely.
Different clocks of the two directions make latencies wrong, as does a clock that is set back during
the capture. Connections that began before the capture hide the software of the client and how it
authenticated. Answers identify topics by name, so a row may be that of several topics: in several
clusters, or created one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.changed_clusters import changed_clusters, changed_evidence
from analysis.diagnosis.causes.dropped import HOLES, missing_requests
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import capital, cells, listed, percent, share, sql, verb
from analysis.display.terminal import counted
from analysis.sql.query import Row
from dissector.problems import DROPPED, LATE_SECRETS, UNDECRYPTED, UNUSED_SECRETS


class Flaw(NamedTuple):
    sentence: str
    cause: str
    change: str
    noun: str = "file"
    """What a problem counts."""


_EARLIER: Final = "responses with an earlier time than their request"
_AGAIN: Final = "Copy the file again, or repeat the capture."
FLAWS: Final[Mapping[str, Flaw]] = {
    "problem: packets unreadable_file": Flaw(
        "The findings do not cover {total} that could not be read",
        "a wrong name, no permission to read, or a format other than pcap and pcapng",
        "Correct the name or the permission, or convert the file: editcap -F pcapng.",
    ),
    "problem: packets truncated_file": Flaw(
        "{total} {are} truncated: requests are missing",
        "the file was copied while the capture ran, the copy is incomplete, or the disk was full",
        _AGAIN,
    ),
    "problem: packets damaged_file": Flaw(
        "Files are damaged in {total}: requests are missing",
        "a disk error, or an error while copying",
        _AGAIN,
        "place",
    ),
    "problem: packets damaged_stream": Flaw(
        "{total} {are} truncated or damaged inside the compression: requests are missing",
        "the file was copied before it was complete, or the copy is damaged",
        _AGAIN,
    ),
    f"problem: packets {DROPPED}": Flaw(
        "The capture dropped {total}: requests may be missing",
        "the capture could not keep up with the traffic",
        "Capture with a larger buffer (tcpdump -B 65536), or less traffic.",
        "packet",
    ),
    "problem: streams cut_packets": Flaw(
        "The capture contains only the first bytes of packets in {total}: fields and records are "
        "missing",
        "the snapshot length of the capture (tcpdump -s)",
        "Capture whole packets (tcpdump -s 0).",
        "stream",
    ),
    "connections encrypted": Flaw(
        "{count} of {total} {are} encrypted: the findings do not cover encrypted requests",
        "the clients use TLS",
        "Pass --keylog FILE with the secrets of the sessions. Without them, encrypted estimates "
        "response times.",
    ),
    "connections of no known protocol": Flaw(
        "{count} of {total} {have} an unknown protocol",
        "another protocol than Kafka, or a start before the capture on a port other than 9092",
        "If brokers listen on these ports, pass --port PORT. At the port of a broker, look for a "
        "program that is no Kafka client, such as a health check or a metrics server (HTTP).",
    ),
    "connections with one side only": Flaw(
        "{count} of {total} {have} packets in only one direction: latencies, errors and throttling "
        "are unknown",
        "the filter or the mirror port of the capture has only one direction, or the other one has "
        "another address at the capture point (NAT)",
        "Capture both directions, for example on the host of the broker. With NAT, capture on the "
        "interface of the container or of the network.",
    ),
    HOLES: Flaw(
        "{count} of {total} {have} lost bytes: requests are missing",
        "the capture dropped packets",
        "Capture with a larger buffer (tcpdump -B 65536), or less traffic.",
    ),
    "connections begun before the capture": Flaw(
        "{count} of {total} began before the capture: software, authentication and handshake of "
        "the client are unknown",
        "clients keep their connections for hours",
        "Restart a client during the capture if its software or authentication matters.",
    ),
    "connections captured more than once": Flaw(
        "{count} of {total} {were} captured more than once: copies count as retransmitted",
        "packets were captured on several interfaces (-i any) or hosts",
        "Nothing to do for rows and latencies. For the figures of network, capture on one "
        "interface.",
    ),
    "requests captured in several connections": Flaw(
        "{count} of {total} {were} also captured in another connection: answers count each copy",
        "the capture has both sides of a proxy, or of address translation (NAT)",
        "Select one side, for example with --broker ADDRESS, or capture on one interface.",
    ),
    "exchanges not decoded": Flaw(
        "{count} of {total} could not be decoded",
        "messages that are damaged, truncated by the snapshot length, newer than the "
        "definitions, or of software that does not follow them",
        "Capture whole packets (tcpdump -s 0). If they are whole, the table problems names the "
        "first field of each message that differs.",
    ),
    "responses without their request": Flaw(
        "The request of {count} of {total} is not in the capture",
        "the request was sent before the capture, or its packets are missing",
        "Nothing to do at the start of a capture; otherwise see quality.",
    ),
    _EARLIER: Flaw(
        "{count} of {total} {have} an earlier time than the request: latencies are wrong",
        "the two directions were captured with different clocks",
        "Capture both directions with one clock, or correct the times of one file: "
        "editcap -t SECONDS.",
    ),
}

_CLOCK_SET_BACK: Final = Flaw(
    "The clock of the capture was set back: {count} of {total} {have} an earlier time than the "
    "request",
    "the clock of the capturing host was corrected while requests waited for a response",
    "Ignore latencies and other durations at this time. Correct clocks gradually (NTP: slew).",
)
_SET_BACK: Final = """
  select max(request_packet) < min(response_packet) and count(distinct capture) = 1
    and min(latency_ms) <= -100 as is_set_back
  from exchanges where latency_ms < 0"""
"""SQL: whether all such requests are before a place in the file, and their responses behind it.
Packets of two clocks are mixed instead, or in order of time. NTP corrects less than 128 ms
gradually."""

CHANGES: Final[Mapping[str | None, str]] = {
    UNDECRYPTED["tls_no_keys"]: "Pass the key log of these sessions. See Decrypt TLS.",
    UNDECRYPTED["tls_wrong_keys"]: "Pass the key log of these sessions. See Decrypt TLS.",
    UNDECRYPTED["tls_no_handshake"]: "Start the capture before the clients connect, or restart "
    "them during it.",
    UNUSED_SECRETS: "Install the package.",
    LATE_SECRETS: "Pass the key log, or put the secrets first with editcap. See Decrypt TLS.",
}
"""What to change if connections are encrypted, by the reason."""

SEVERAL_IDS: Final = """
  select topic, count(distinct topic_id) as ids from topics
  group by topic having ids > 1 order by topic"""
"""SQL: topics of which Metadata has several ids (KIP-516)."""


@rule(
    question="What can the capture not show?",
    place=22,
    rests_on="quality topics",
    thresholds=(Threshold("percent", 1, "%", "Smaller parts of a capture rarely hide a cause."),),
)
def coverage(case: Case, limits: Limits) -> Iterator[Finding]:
    """Flaws of the capture, by the answer `quality`."""
    for row in case.answer("quality"):
        flaw = FLAWS.get(row["flaw"])
        if flaw is None or not row["count"]:
            continue
        count, is_problem = row["count"], row["total"] is None
        if row["flaw"] == HOLES:
            count -= len(missing_requests(case))
        part = share(count, row["total"])
        if row["flaw"] == _EARLIER and case.rows(_SET_BACK)[0]["is_set_back"]:
            flaw = _CLOCK_SET_BACK
        elif not is_problem and (not count or part < limits["percent"]):
            continue
        noun = flaw.noun if is_problem else _noun(row["flaw"])
        total = counted(count if is_problem else row["total"], noun)
        verbs = {name: verb(count, name) for name in ("are", "were", "have")}
        evidence = f"The first: {row['detail']}."  # may begin with the name of a file
        if not is_problem:
            detail = f" {capital(row['detail'])}." if row["detail"] else ""
            evidence = f"{percent(part)} of the {noun}s.{detail}"
        yield Finding(
            severity="note",
            subject="the capture",
            sentence=flaw.sentence.format(count=f"{count:,}", total=total, **verbs),
            evidence=evidence,
            numbers=cells(row, "flaw count" if is_problem else "flaw count total"),
            cause=flaw.cause,
            side="capture",
            change=CHANGES.get(row["detail"], flaw.change),
            reference="Glossary and docs/slow.md, Is the capture complete?",
            command="quality",
        )
    if mixed := case.rows(SEVERAL_IDS):
        yield _mixed_finding(mixed, changed_evidence(changed_clusters(case)))


def _mixed_finding(topics: list[Row], changed: str) -> Finding:
    """The finding for topics with several ids; `changed`: how clusters changed."""
    names = listed(f"`{row['topic']}`" for row in topics)
    return Finding(
        severity="note",
        subject="the capture",
        sentence=f"{counted(len(topics), 'topic name')} {verb(len(topics), 'have')} several topic "
        "ids: answers have one row for these topics",
        evidence=f"Metadata has {topics[0]['ids']:,} ids of `{topics[0]['topic']}`"
        + (f"; all: {names}." if len(topics) > 1 else ".")
        + changed,
        numbers=dict(topics[0]),
        cause="the capture has several clusters, as on a host of MirrorMaker, or a topic was "
        "deleted and created again",
        side="capture",
        change="Select a cluster with --cluster, whose ids are in the table clusters, or limit the "
        "time with --since.",
        reference="KIP-516; Limits: Several clusters in one capture",
        command=sql(SEVERAL_IDS),
    )


def _noun(flaw: str) -> str:
    """The singular of the first word of a flaw: connection, exchange or response."""
    return flaw.partition(" ")[0].removesuffix("s")

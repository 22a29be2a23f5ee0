"""Slow brokers: a broker takes a long time to respond, or much longer than its peers.

If several brokers are about equally slow in one API, none of them is the cause: they are one
finding. With acks=all, one slow follower delays all leaders. If the capture contains its requests,
the finding names it.

Latencies exclude long polls and the queue of the connection, and the round trip to the broker if it
is known, also if it grows (`causes.grown_round_trips`). Brokers are compared by requests of the
same API. Endpoints with the same id in `brokers` are one broker. The time of a finding is that of
the requests above the threshold.

If the capture does not contain the Produce of the records of a Fetch, their timestamps do not prove
that they were there: an application may set them, the producer keeps them for linger.ms, and its
clock may be wrong. Such a Fetch may have waited for fetch.max.wait.ms, so only the time beyond it
counts, unless an earlier response shows that the log was longer.

A broker delays the response to a failed login on purpose, so it does not count
(connection.failed.authentication.delay.ms, KIP-306). If only ApiVersions is slow, which is the
first request of a connection, the broker accepts connections late.

A broker that refused connections before is slow for its first seconds, which do not count. A broker
that sends nothing for seconds while requests wait was paused. Shorter pauses count if they are a
large part of the time, and pauses of a second or more if there are several: between them, a broker
may respond to most requests at once.

The listener of a KRaft controller is not evaluated, because its requests wait for the metadata
quorum, and producers and consumers send none (KIP-595, KIP-631).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from analysis.answers.lag import ENDS
from analysis.answers.network import LINKS
from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.grown_round_trips import GROWN
from analysis.diagnosis.causes.pauses import (
    LONG_MS,
    LONG_PAUSES,
    PAUSE_MS,
    PAUSES,
    PAUSES_PERCENT,
    are_in_pauses,
    paused_controller,
    pauses,
    repeated_finding,
    repeated_pauses,
    with_pause,
)
from analysis.diagnosis.causes.slow_follower import with_slow_follower
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import cells, listed, ms, rows_by, span_of
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint, literal, literals, not_negative
from analysis.sql.failures import OUTAGES
from analysis.sql.latency_breakdown import exchanges_with_parts
from analysis.sql.query import Row

_START_S: Final = 10
"""After its start, a broker is slow for some seconds: it has to load code, state and files."""

IDS: Final = f"""
  select {endpoint("broker")} as broker, arg_max(broker_id, (time, nth)) as id
  from (select host as broker_ip, port as broker_port, broker_id, time, nth from brokers)
  group by 1"""
"""SQL: the id of each endpoint."""


_HAD_RECORDS: Final = f"""
  with fetches as (
    select connection_id, correlation_id, response_time as time, request_time from exchanges
    where api in ('Fetch', 'ShareFetch')),
  fetched as (
    select batches.*, request_time from batches join fetches
      using (connection_id, correlation_id, time)
    where batches.api in ('Fetch', 'ShareFetch') and not coalesce(is_control, false)),
  produced as (
    select distinct topic, partition, base_offset, true as is_produced from batches
    where api = 'Produce' and base_offset is not null)
  select connection_id, correlation_id, fetched.time
  from fetched left join produced using (topic, partition, base_offset)
    asof left join {ENDS} as ends on fetched.topic = ends.topic
      and fetched.partition = ends.partition and request_time >= ends.time
  group by all
  having bool_and(coalesce(is_produced, false))
    or bool_or(end_offset > fetched.base_offset and not coalesce(is_transactional, false))"""
"""SQL: Fetch responses with batches whose Produce is in the capture, so that the time of their
arrival is known, or with one that was in the log before the request."""

_MAY_HAVE_WAITED: Final = f"""
  api in ('Fetch', 'ShareFetch') and coalesce(record_bytes > 0, false)
    and (connection_id, correlation_id, response_time) not in ({_HAD_RECORDS})"""
"""SQL: whether a Fetch has records that may have arrived during the request."""


_ENDED_OUTAGES: Final = f"(from {OUTAGES} where end_time is not null)"
_LOGIN: Final = ("SaslHandshake", "SaslAuthenticate")


def _requests() -> str:
    """SQL: requests with the time of their broker."""
    return f"""(
      select {endpoint("parts.broker")} as broker, api, request_time, response_time, request_packet,
        greatest(coalesce(links.broker_rtt_ms, 0), coalesce(grown.rtt_ms, 0)) as trip_ms,
        {not_negative("net_ms - waited_ms - trip_ms")} as broker_ms
      from (select *, case when {_MAY_HAVE_WAITED} then coalesce(max_wait_ms, 0) else 0 end
          as waited_ms from {exchanges_with_parts()}) as parts
        left join {LINKS} as links using (connection_id)
        left join {GROWN} as grown on grown.broker = {endpoint("parts.broker")}
          and second = epoch_ns(request_time) // 1000000000
        asof left join {_ENDED_OUTAGES} as outages
          on parts.broker_ip = outages.broker_ip and parts.broker_port = outages.broker_port
            and request_time >= end_time
      where net_ms is not null
        and not (api in {literals(_LOGIN)} and coalesce(error_code, 0) != 0)
        and coalesce(request_time > end_time + interval {_START_S} seconds, true))"""


def _tails() -> str:
    """SQL: the 0.95 quantile of the broker's time, by broker and API, and its sample: it is unknown
    how much of some latencies was work (`analysis.sql.latency_breakdown`)."""
    return f"""
      select broker, api, quantile_cont(broker_ms, 0.95) as tail_ms, count(*) as sample
      from {_requests()} group by all"""


def _slow_requests(row: Row) -> str:
    """SQL: the number, the first and the last of the requests of an API for which the broker took
    too much time."""
    return f"""
      select count(*) as requests, arg_min(request_packet, request_time) as first_packet,
        min(request_time) as first_time, max(response_time) as last_time
      from {_requests()} where broker_ms >= {row["slow_ms"]}
        and (broker, api) = ({literal(row["broker"])}, {literal(row["api"])})"""


def _slow_times(row: Row) -> str:
    """SQL: the times of these requests, and of their responses, in ns."""
    return f"""
      select epoch_ns(request_time) as since, epoch_ns(response_time) as until
      from {_requests()} where broker_ms >= {row["slow_ms"]}
        and (broker, api) = ({literal(row["broker"])}, {literal(row["api"])})"""


@rule(
    question="Does a broker take too much time?",
    place=5,
    rests_on="latency network brokers replication",
    thresholds=(
        Threshold("net_p95_ms", 100, "ms", "0.95 quantile of an API, excluding waits. A healthy "
                  "broker takes 1 to 10 ms for most requests, and tens of ms with acks=all and "
                  "slow disks."),
        Threshold("times_peer", 5, "times", "A broker is also slow if its quantile is this many "
                  "times that of the fastest other broker for the same API. Brokers of one cluster "
                  "rarely differ by more than a factor of two."),
        Threshold("least_ms", 20, "ms", "Smallest quantile for the comparison with another broker: "
                  "below it, even a large factor costs a client little."),
        Threshold("pause_ms", PAUSE_MS, "ms", "Time without any response of a broker, while "
                  "requests of several connections wait. Elections take a second or two. Critical "
                  "from 30 s, request.timeout.ms by default: calls of clients fail."),
        Threshold("pauses", PAUSES, "pauses", "Shorter pauses, of 50 ms or more, that count "
                  "together. A broker that starts has a few."),
        Threshold("pauses_percent", PAUSES_PERCENT, "%", "Their share of the time from the first "
                  "to the last: a fifth of the throughput is lost. Critical from a half."),
        Threshold("long_pauses", LONG_PAUSES, "pauses", "Pauses of long_pause_ms that count, "
                  "too, even if they are rare. A broker that starts, and an election, have one or "
                  "two."),
        Threshold("long_pause_ms", LONG_MS, "ms", "A user notices a second."),
        Threshold("connections", 10, "requests", "ApiVersions requests that take net_p95_ms, at a "
                  "broker that accepts connections late. After its start, a broker is slow for a "
                  "few connections."),
        Threshold("times_connection", 10, "times", "The 0.95 quantile of ApiVersions, as a "
                  "multiple of that of Metadata, the next request of most clients. A broker "
                  "responds to both from memory."),
        Threshold("requests", 100, "requests", "Smallest sample of an API at a broker: five "
                  "requests are above the quantile."),
    ),
)  # fmt: skip
def slow_broker(case: Case, limits: Limits) -> Iterator[Finding]:
    """The slowest API of each slow broker, by the answer `latency`; equal brokers together."""
    late = {row["broker"]: row for row in _late_accepts(case, limits)}
    yield from map(_accepting, late.values())
    paused = pauses(case, limits["pause_ms"])
    reported = {*paused}
    names = ("pauses", "pauses_percent", "long_pauses", "long_pause_ms")
    repeated = {
        row["broker"]: row for row in repeated_pauses(case, *(limits[name] for name in names))
    }
    pausing = {broker for broker, row in repeated.items() if row["is_long"]} - {*paused}
    for finding in _slow_brokers(case, limits, late, pausing):
        reported |= {*finding.subject.replace(",", "").split()}
        pause = paused.pop(finding.subject.removeprefix("broker "), None)
        yield with_pause(finding, pause, f" {finding.evidence}") if pause else finding
    for broker, pause in paused.items():
        rows = [row for row in case.answer("latency --by broker,api") if row["broker"] == broker]
        slowest = max(rows, key=lambda row: row["net_max_ms"] or 0)
        times = {"peer": None, "first_packet": None, "first_time": None, "last_time": None}
        finding = with_pause(_finding(slowest | times), pause)
        yield finding if case.role(broker) == "broker" else paused_controller(finding, pause)
    yield from (
        repeated_finding(row) for row in repeated.values()
        if row["broker"] not in reported and case.role(row["broker"]) == "broker"
    )  # fmt: skip


def _slow_brokers(
    case: Case, limits: Limits, late: Collection[str], pausing: Collection[str]
) -> Iterator[Finding]:
    """`late`: brokers that accept connections late. `pausing`: those with several long pauses,
    for which their requests may have waited."""
    samples = [
        row for row in case.answer("latency --by broker,api")
        if row["count"] >= limits["requests"]
        and not (row["api"] == "ApiVersions" and row["broker"] in late)
    ]  # fmt: skip
    if not _may_be_slow(case, samples, limits):
        return
    ids = {row["broker"]: row["id"] for row in case.rows(IDS)}
    tails = {
        (row["broker"], row["api"]): row["tail_ms"] for row in case.rows(_tails())
        if row["sample"] >= limits["requests"]
    }  # fmt: skip
    by_api: dict[str, list[Row]] = defaultdict(list)
    for row in samples:
        tail = tails.get((row["broker"], row["api"]))
        if tail is not None and case.role(row["broker"]) == "broker":
            added = {"id": ids.get(row["broker"], row["broker"]), "tail_ms": tail}
            by_api[row["api"]].append(row | added | {"total_ms": tail * row["count"]})
    slow: dict[int | str, Row] = {}
    for rows in by_api.values():
        for row in rows:
            peers = [peer for peer in rows if peer["id"] != row["id"]]
            peer = min(peers, key=lambda peer: peer["tail_ms"], default=None)
            worst, slow_ms = slow.get(row["id"], {"total_ms": 0}), _slow_ms(peer, limits)
            if row["tail_ms"] >= slow_ms and row["total_ms"] > worst["total_ms"]:
                slow[row["id"]] = row | {"peer": peer, "slow_ms": slow_ms}
    not_paused = (
        row for row in slow.values()
        if row["broker"] not in pausing
        or not are_in_pauses(case, row["broker"], case.rows(_slow_times(row)))
    )  # fmt: skip
    slowest_first = sorted(not_paused, key=lambda row: -row["tail_ms"])
    timed = (row | times for row in slowest_first for times in case.rows(_slow_requests(row)))
    for rows in rows_by(timed, "api").values():
        slowest, *others = rows
        times = limits["times_peer"]
        equal = [slowest]
        equal += [row for row in others if row["tail_ms"] * times > slowest["tail_ms"]]
        finding = _finding(slowest) if len(equal) == 1 else _shared(equal)
        if slowest["api"] == "Produce":
            brokers = [row["broker"] for row in equal]
            finding = with_slow_follower(case, finding, brokers, limits["net_p95_ms"])
        yield finding
        yield from map(_finding, rows[len(equal) :])


def _may_be_slow(case: Case, rows: list[Row], limits: Limits) -> bool:
    """Whether the tail of a row of the answer `latency` may be long enough for a finding: the time
    of a broker is a part of the net latency. Without the requests that `_requests` excludes, a
    quantile may be larger.
    """
    least = min(limits["net_p95_ms"], limits["least_ms"])
    if any((row["net_p95_ms"] or 0) >= least for row in rows):
        return True
    apis = {row["api"] for row in rows if (row["net_max_ms"] or 0) >= least}
    return not apis.isdisjoint(_LOGIN) or bool(apis and case.rows(f"from {_ENDED_OUTAGES}"))


def _late_accepts(case: Case, limits: Limits) -> Iterator[Row]:
    """The row of ApiVersions of each broker that takes long only for the first request."""
    rows = {(row["broker"], row["api"]): row for row in case.answer("latency --by broker,api")}
    for (broker, api), row in rows.items():
        peer = rows.get((broker, "Metadata"))
        if api == "ApiVersions" and peer and row["count"] >= limits["connections"]:
            first_ms, next_ms = row["net_p95_ms"] or 0, peer["net_p95_ms"] or 0
            if first_ms >= max(limits["net_p95_ms"], limits["times_connection"] * next_ms):
                added = {"next_ms": next_ms, "peer": None, "slow_ms": limits["net_p95_ms"]}
                (slow,) = case.rows(_slow_requests(row | added))
                if slow["requests"] >= limits["connections"]:
                    yield row | added | slow


def _accepting(row: Row) -> Finding:
    return replace(
        _finding(row),
        sentence=f"Broker {row['broker']} accepts connections late: one first request in twenty "
        f"takes {ms(row['net_p95_ms'])} or more",
        evidence=f"{row['requests']:,} of {counted(row['count'], 'ApiVersions request')} took "
        f"{ms(row['slow_ms'])} or more; median {ms(row['net_p50_ms'])}, longest "
        f"{ms(row['net_max_ms'])}. The 0.95 quantile of Metadata, the next request of most "
        f"clients, is {ms(row['next_ms'])}.",
        cause="a limit of the rate of new connections is reached, or the acceptor or network "
        "threads of the broker are busy",
        setting="max.connection.creation.rate",
        change="Compare the rate of new connections with max.connection.creation.rate of the "
        "broker and its listener, and look for clients that reconnect all the time (leadership "
        "--show clients). Metrics: connection-accept-rate, connection-accept-throttle-time.",
        reference="KIP-612",
    )


def _slow_ms(peer: Row | None, limits: Limits) -> float:
    """The time of the broker from which a request is slow."""
    if peer is None:
        return limits["net_p95_ms"]
    compared: float = max(limits["least_ms"], limits["times_peer"] * peer["tail_ms"])
    return min(limits["net_p95_ms"], compared)


_METRICS: Final = (
    "RequestQueueTimeMs (too few num.io.threads), LocalTimeMs (disk), RemoteTimeMs (followers, or "
    "remote storage) and ResponseSendTimeMs (clients) of this API"
)


REPLICATED: Final = (
    "OffsetCommit", "TxnOffsetCommit", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn",
)  # fmt: skip
"""APIs that write to an internal topic, and wait for its followers."""


def _finding(row: Row) -> Finding:
    api, broker, peer, tail = row["api"], row["broker"], row["peer"], ms(row["net_p95_ms"])
    against = peer and (
        f" At broker {peer['broker']}, the 0.95 quantile of "
        f"{counted(peer['count'], api + ' request')} is {ms(peer['net_p95_ms'])}."
    )
    follower = " or, with acks=all, one of its followers" if api == "Produce" else ""
    if api in REPLICATED:
        follower = " or one of its followers"
    reads = ", or reads old segments from disk or remote storage (KIP-405)" * (api == "Fetch")
    return Finding(
        severity="warning",
        subject=f"broker {broker}",
        sentence=f"Broker {broker} is slow: one {api} in twenty takes {tail} or more",
        evidence=f"{counted(row['count'], 'request')}, excluding waits: median "
        f"{ms(row['net_p50_ms'])}, 0.95 quantile {tail}, "
        f"longest {ms(row['net_max_ms'])}.{against or ''}",
        numbers=cells(row, "broker api count net_p50_ms net_p95_ms net_max_ms"),
        cause=f"the broker{follower} lacks CPU, disk throughput or memory, or collects garbage"
        + reads,
        side="broker",
        setting="num.io.threads",
        change=f"Look at the broker's {_METRICS}.",
        reference="Kafka documentation: Monitoring",
        command="latency --by broker,api",
        requests=row["count"],
        **span_of([row]),
    )


def _shared(rows: list[Row]) -> Finding:
    """A finding for brokers that are about equally slow; the slowest is the first."""
    api, is_produce = rows[0]["api"], rows[0]["api"] == "Produce"
    first = min(rows, key=lambda row: row["first_time"])
    return replace(
        _finding(rows[0]),
        subject=f"brokers {listed(row['broker'] for row in rows)}",
        sentence=f"{len(rows)} brokers are about equally slow: one {api} in twenty takes "
        f"{ms(rows[-1]['net_p95_ms'])} or more",
        evidence=f"0.95 quantiles of {api} requests, excluding waits: "
        + listed(f"{row['broker']} {ms(row['net_p95_ms'])}" for row in rows)
        + ".",
        cause="the brokers have a cause in common: "
        + "a follower for which all leaders wait with acks=all, " * is_produce
        + "storage or hosts that they share, or more load than all of them can serve",
        change=f"Compare {_METRICS} at these brokers."
        + " The answer replication shows which follower is late." * is_produce,
        requests=sum(row["count"] for row in rows),
        first_packet=first["first_packet"],
        first_time=first["first_time"],
        last_time=max(row["last_time"] for row in rows),
    )

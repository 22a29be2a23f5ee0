"""Brokers that send nothing for seconds while requests wait, or again and again for less.

All requests that are pending during a pause are late, but they are few, because clients wait for
them: a quantile of the latency does not show a pause. The rule `slow_broker` reports pauses.

If only logins wait, the broker does not need to be paused: it resolves a name for each of them
(`SaslServerAuthenticator`), and calls login modules.

If no client sends anything meanwhile, perhaps all of them wait for the broker. But the clock of the
capture may also have been set forward.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from operator import itemgetter
from statistics import median
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import Advice, cells, clients, ms, percent, rows_by, share, span_of
from analysis.display.terminal import counted, moment_text
from analysis.kafka.normal import REQUEST_TIMEOUT_MS, group_barriers
from analysis.sql.expressions import endpoint, first_packet, literal, literals, ms_between
from analysis.sql.query import Row

PAUSE_MS: Final = 5_000
"""The shortest pause, by default."""
PAUSES, PAUSES_PERCENT = 10, 20
"""The number of shorter pauses, and their share of the time, by default."""
LONG_PAUSES, LONG_MS = 3, 1_000
"""The number of pauses of this length that count, too, however rare they are, by default."""
CRITICAL_PERCENT: Final = 50
"""The share of the time of several pauses from which they are critical."""
TIMES_USUAL: Final = 4
"""The shortest of several pauses, as a multiple of the time of quick requests."""
LEAST_BEFORE: Final = 20
"""Produce requests before the pause, from which on their absence is no chance."""
SHORT_MS: Final = 50
"""The shortest of several pauses. With a CPU limit, Linux pauses a process for a part of each 100
ms (cpu.max of its cgroup)."""

_MOVES_LEADERS: Final = (
    "After broker.session.timeout.ms (9 s by default), the controller moves the leaders of the "
    "broker."
)
_ELECTS: Final = (
    "After controller.quorum.fetch.timeout.ms (2 s by default), the other controllers elect "
    "another leader of the quorum."
)

_PAUSED: Final = Advice(
    "the broker or its host was paused (garbage collection, swapping, a frozen virtual machine), "
    "or its network was interrupted",
    "broker", None,
    f"Look at the log of garbage collection, the disk and the host at this time. {_MOVES_LEADERS}",
    "Kafka documentation: Monitoring; KIP-500",
)  # fmt: skip
_SILENT: Final = _PAUSED._replace(
    cause=f"{_PAUSED.cause}; or the clock of the capture was set forward, or its host was paused: "
    "no message of any connection was captured meanwhile",
    change=f"{_PAUSED.change} Compare with the log of NTP on the capturing host.",
)
_LOGS_IN: Final = Advice(
    "the broker is late for new connections only: when a client logs in, it resolves the name of "
    "its own address, and the name server does not respond in time; or its login module waits for "
    "another server, such as Kerberos or LDAP",
    "broker", None,
    "On the host of the broker, measure how long getent hosts ADDRESS takes, with the address of "
    "the broker's listener. Add it to /etc/hosts, or correct the name server. Look at the servers "
    "that the login module asks.",
    "Kafka documentation: Security, Authentication using SASL",
)  # fmt: skip

_REPEATED: Final = Advice(
    "the broker is paused again and again: the CPU limit of its container, garbage collection, "
    "swapping, or a host with too little CPU",
    "broker", None,
    "Compare nr_throttled and throttled_usec in cpu.stat of its cgroup, its log of garbage "
    "collection, and the steal time of its host at these times.",
    "Kafka documentation: Monitoring; Linux: Control Group v2, CPU",
)  # fmt: skip
_COLLECTS: Final = _REPEATED._replace(
    cause="the broker is paused again and again: garbage collection, swapping, a disk that stalls, "
    "or a host with too little CPU; or its network is interrupted",
    change="Compare its log of garbage collection, and the disk, the free memory and the steal "
    "time of its host, with these times.",
    reference="Kafka documentation: Hardware and OS, Java Version",
)


def pauses(case: Case, pause_ms: float) -> dict[str, Row]:
    """The longest pause of each broker, by address; see `_pauses`.

    `is_silent`: whether most of the pause has no message of any connection. `stopped`: see
    `_stopped_producers`.
    """
    rows = _pauses(case, pause_ms)
    silences = _silences(case, 0.9 * pause_ms) if rows else []
    return {
        row["broker"]: row | {"is_silent": _is_silent(row, silences)}
        | {"stopped": _stopped_producers(case, row)}
        for row in rows
    }  # fmt: skip


def all_pauses(case: Case) -> list[Row]:
    """The pauses of all brokers with the default length; see `_pauses`."""
    return _pauses(case, PAUSE_MS)


def _pauses(case: Case, pause_ms: float, times_usual: float = 0) -> list[Row]:
    """The pauses of brokers, the longest last.

    A pause begins with the first request that waits for its end, because a broker without requests
    sends no response, either. Requests of several connections wait for at least half of it. A long
    poll waits from its max_wait_ms on. Connections that a quota throttles wait for another reason.

    `times_usual`: requests wait this many times the time of the quickest tenth of their API. Others
    always take long, because of the distance or of followers.
    """
    return case.rows(f"""
      with sent as (
        select *, {endpoint("broker")} as broker, epoch_ns(response_time) as replied,
          epoch_ns(request_time) + coalesce(max_wait_ms, 0)::bigint * 1000000 as wait_since
        from exchanges where request_time is not null and response_time is not null),
      -- Only these waits count below. They are few, and to sort all requests takes long.
      late as (
        from sent
        where (replied - wait_since) / 1e6 >= {pause_ms} / 2
          and api not in {literals(group_barriers())}
          and connection_id not in (
            select connection_id from exchanges where throttle_time_ms > 0)),
      usual as (
        select broker, api, quantile_cont(greatest(replied - wait_since, 0), 0.1) as quick_ns
        from sent semi join late using (broker, api) group by all),
      gaps as (
        select broker, replied as until,
          lag(replied) over (partition by broker order by replied) as gap_since
        from sent semi join late using (broker) qualify until - gap_since >= {pause_ms * 1e6}),
      waits as (
        select late.*, until, greatest(gap_since, wait_since) as since
        from late asof join gaps on late.broker = gaps.broker and replied >= until
        where epoch_ns(request_time) < until),
      pending as (
        select waits.*, (until - since) / 1e6 as waited_ms,
          max(waited_ms) over (partition by waits.broker, until) as lasts_ms
        from waits join usual using (broker, api) where until - since >= {times_usual} * quick_ns)
      select broker, min(since) as since, until, any_value(lasts_ms) as lasts_ms,
        count(*) as requests, count(distinct client_id) as clients,
        bool_and(api in ('SaslHandshake', 'SaslAuthenticate')) as are_logins,
        {first_packet()} as first_packet
      from pending where lasts_ms >= {pause_ms} and waited_ms >= lasts_ms / 2
      group by broker, until having count(distinct connection_id) >= 2
      order by lasts_ms, broker, until""")


def repeated_pauses(
    case: Case,
    least: float = PAUSES,
    least_percent: float = PAUSES_PERCENT,
    least_long: float = LONG_PAUSES,
    long_ms: float = LONG_MS,
) -> list[Row]:
    """Brokers whose pauses are a large part of the time from the first to the last of them, and
    those with several long ones.

    `is_long`: whether the row has only the long ones.
    """
    rows = []
    for short in rows_by(_pauses(case, SHORT_MS, TIMES_USUAL), "broker").values():
        total, long = _sums(short), [row for row in short if row["lasts_ms"] >= long_ms]
        if len(short) >= max(least, 1) and total["paused_percent"] >= least_percent:
            rows.append(total | {"is_long": False})
        elif len(long) >= max(least_long, 1):
            rows.append(_sums(long) | {"is_long": True})
    return rows


def are_in_pauses(case: Case, broker: str, requests: list[Row]) -> bool:
    """Whether most of the requests waited for the end of one of the shorter pauses of a broker.

    `requests`: with `since` and `until`, in ns.
    """
    rows = _pauses(case, SHORT_MS, TIMES_USUAL)
    ends = sorted(row["until"] for row in rows if row["broker"] == broker)
    waited = [bisect_left(ends, each["since"]) < bisect_right(ends, each["until"])
              for each in requests]  # fmt: skip
    return 2 * sum(waited) > len(waited)


def _sums(rows: list[Row]) -> Row:
    """Pauses of one broker, the longest last, in one row."""
    start = min(rows, key=itemgetter("since"))
    first, last = start["since"], max(row["until"] for row in rows)
    paused_ms, span_ms = sum(row["lasts_ms"] for row in rows), (last - first) / 1e6
    return {
        "broker": rows[0]["broker"], "pauses": len(rows), "paused_ms": paused_ms,
        "span_ms": span_ms, "paused_percent": share(paused_ms, span_ms),
        "median_ms": median(row["lasts_ms"] for row in rows), "longest_ms": rows[-1]["lasts_ms"],
        "requests": sum(row["requests"] for row in rows),
        "first_packet": start["first_packet"],
        "first_time": first, "last_time": last,
    }  # fmt: skip


def paused_brokers(case: Case) -> set[str]:
    """The addresses of brokers that `slow_broker` reports by default because of pauses."""
    return {*pauses(case, PAUSE_MS), *(row["broker"] for row in repeated_pauses(case))}


def repeated_finding(row: Row) -> Finding:
    """The finding for a row of `repeated_pauses`."""
    part, median_text = percent(row["paused_percent"]), ms(row["median_ms"])
    times = f"{part} of the time" if not row["is_long"] else f"{median_text}, again and again"
    return Finding(
        severity="critical" if row["paused_percent"] >= CRITICAL_PERCENT else "warning",
        subject=f"broker {row['broker']}",
        sentence=f"Broker {row['broker']} pauses: it sends no response for {times}",
        evidence=f"{counted(row['pauses'], 'pause')} of {median_text} (median), the "
        f"longest of {ms(row['longest_ms'])}: {ms(row['paused_ms'])} of {ms(row['span_ms'])}. "
        "Meanwhile, requests of several connections waited.",
        numbers=cells(row, "broker pauses paused_ms span_ms longest_ms"),
        command="latency --by broker,api",
        **span_of([row]),
        requests=row["requests"],
        **(_COLLECTS if row["is_long"] else _REPEATED)._asdict(),
    )


def _silences(case: Case, least_ms: float) -> list[Row]:
    """The times without a message of any connection."""
    return case.rows(f"""
      select since, until, {ms_between("since", "until")} as lasts_ms from (
        select time as since, lead(time) over (order by time) as until from (
          select unnest([request_time, response_time]) as time from exchanges)
        where time is not null)
      where epoch_ns(until) - epoch_ns(since) >= {least_ms * 1e6}""")


def _stopped_producers(case: Case, pause: Row) -> list[str | None]:
    """Clients whose Produce requests wait for the end of a pause, and that send none to other
    brokers in its second half, although they did before, and these respond to other requests: their
    buffer is full."""
    since, until = pause["since"], pause["until"]
    half = (since + until) // 2
    rows = case.rows(f"""
      with sent as (
        select client_id, api, {endpoint("broker")} = {literal(pause["broker"])} as is_paused,
          epoch_ns(request_time) as time, epoch_ns(response_time) as replied
        from exchanges where request_time is not null)
      select client_id from sent
      where api = 'Produce' and exists (
        from sent where not is_paused and time >= {half} and replied < {until})
      group by client_id
      having bool_or(is_paused and time < {until} and replied >= {until})
        and count(*) filter (not is_paused and time < {since}) >= {LEAST_BEFORE}
        and not bool_or(not is_paused and time >= {half} and time < {until})
      order by client_id""")
    return [row["client_id"] for row in rows]


def _is_silent(pause: Row, silences: list[Row]) -> bool:
    return any(
        pause["since"] <= each["since"] and each["until"] <= pause["until"]
        and each["lasts_ms"] >= 0.9 * pause["lasts_ms"]
        for each in silences
    )  # fmt: skip


def with_pause(finding: Finding, pause: Row, evidence: str = "") -> Finding:
    """The finding for a broker with a pause; `evidence`: of the rest of the time.

    It is critical if calls of clients fail: they wait for request.timeout.ms.
    """
    is_critical = pause["lasts_ms"] >= REQUEST_TIMEOUT_MS and not pause["is_silent"]
    return replace(
        finding,
        severity="critical" if is_critical else finding.severity,
        sentence=f"Broker {pause['broker']} sent no response for {ms(pause['lasts_ms'])}",
        evidence=f"{counted(pause['requests'], 'request')} of "
        f"{counted(pause['clients'], 'client')} waited until {moment_text(pause['until'])}."
        + _stopped_evidence(pause["stopped"])
        + evidence,
        first_packet=pause["first_packet"],
        first_time=pause["since"],
        last_time=pause["until"],
        **(
            _LOGS_IN if pause["are_logins"] else _SILENT if pause["is_silent"] else _PAUSED
        )._asdict(),
    )


def _stopped_evidence(names: list[str | None]) -> str:
    """A sentence about the clients of `_stopped_producers`."""
    if not names:
        return ""
    return (
        f" Meanwhile, {clients(names)} sent nothing to other brokers, either: a producer waits "
        "when its buffer.memory is full."
    )


def paused_controller(finding: Finding, pause: Row) -> Finding:
    """The finding of `with_pause` for a controller."""
    return replace(
        finding,
        subject=f"controller {pause['broker']}",
        sentence=finding.sentence.replace("Broker", "Controller", 1),
        cause=finding.cause.replace("the broker", "the controller", 1),
        change=finding.change.replace(_MOVES_LEADERS, _ELECTS),
    )

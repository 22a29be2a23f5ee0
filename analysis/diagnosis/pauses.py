"""Brokers that send nothing for seconds while requests wait, for the rule `slow_broker`.

All requests that are pending during a pause are late, but they are few, because clients wait for
them: a quantile of the latency does not show a pause.

If no client sends anything meanwhile, perhaps all of them wait for the broker. But the clock of the
capture may also have been set forward.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import Advice, ms
from analysis.display.terminal import counted, moment_text
from analysis.kafka.normal import group_barriers
from analysis.sql.expressions import endpoint, literals, ms_between
from analysis.sql.query import Row

PAUSE_MS: Final = 5_000
"""The shortest pause, by default."""

_PAUSED: Final = Advice(
    "the broker or its host was paused (garbage collection, swapping, a frozen virtual machine), "
    "or its network was interrupted",
    "broker", None,
    "Look at the log of garbage collection, the disk and the host at this time. After "
    "broker.session.timeout.ms (9 s by default), the controller moves the leaders of the broker.",
    "Kafka documentation: Monitoring; KIP-500",
)  # fmt: skip
_SILENT: Final = _PAUSED._replace(
    cause=f"{_PAUSED.cause}; or the clock of the capture was set forward, or its host was paused: "
    "no message of any connection was captured meanwhile",
    change=f"{_PAUSED.change} Compare with the log of NTP on the capturing host.",
)


def pauses(case: Case, pause_ms: float) -> dict[str, Row]:
    """The longest pause of each broker, by address.

    It begins with the first request that waits for its end, because a broker without requests sends
    no response, either. Requests of several connections wait for at least half of it. A long poll
    waits from its max_wait_ms on. `is_silent`: whether most of the pause has no message of any
    connection.
    """
    rows = case.rows(f"""
      with sent as (
        select *, {endpoint("broker")} as broker from exchanges where request_time is not null),
      gaps as (
        select broker, epoch_ns(response_time) as since,
          epoch_ns(lead(response_time) over (
            partition by broker order by response_time)) as until
        from sent where response_time is not null),
      waits as (
        select sent.*, until, greatest(
          since, epoch_ns(request_time) + coalesce(max_wait_ms, 0)::bigint * 1000000) as since
        from gaps join sent on sent.broker = gaps.broker and epoch_ns(request_time) < until
          and epoch_ns(response_time) >= until and api not in {literals(group_barriers())}
        where until - gaps.since >= {pause_ms * 1e6}),
      pending as (
        select *, (until - since) / 1e6 as waited_ms,
          max(waited_ms) over (partition by broker, until) as lasts_ms
        from waits)
      select broker, min(since) as since, until, any_value(lasts_ms) as lasts_ms,
        count(*) as requests, count(distinct client_id) as clients,
        min(request_packet) as first_packet
      from pending where lasts_ms >= {pause_ms} and waited_ms >= lasts_ms / 2
      group by broker, until having count(distinct connection_id) >= 2
      order by lasts_ms, broker""")
    silences = _silences(case, 0.9 * pause_ms) if rows else []
    return {row["broker"]: row | {"is_silent": _is_silent(row, silences)} for row in rows}


def _silences(case: Case, least_ms: float) -> list[Row]:
    """The times without a message of any connection."""
    return case.rows(f"""
      select since, until, {ms_between("since", "until")} as lasts_ms from (
        select time as since, lead(time) over (order by time) as until from (
          select unnest([request_time, response_time]) as time from exchanges)
        where time is not null)
      where epoch_ns(until) - epoch_ns(since) >= {least_ms * 1e6}""")


def _is_silent(pause: Row, silences: list[Row]) -> bool:
    return any(
        pause["since"] <= each["since"] and each["until"] <= pause["until"]
        and each["lasts_ms"] >= 0.9 * pause["lasts_ms"]
        for each in silences
    )  # fmt: skip


def with_pause(finding: Finding, pause: Row, evidence: str = "") -> Finding:
    """The finding for a broker with a pause; `evidence`: of the rest of the time."""
    return replace(
        finding,
        sentence=f"Broker {pause['broker']} sent no response for {ms(pause['lasts_ms'])}",
        evidence=f"{counted(pause['requests'], 'request')} of "
        f"{counted(pause['clients'], 'client')} waited until {moment_text(pause['until'])}."
        f"{evidence}",
        first_packet=pause["first_packet"],
        first_time=pause["since"],
        last_time=pause["until"],
        **(_SILENT if pause["is_silent"] else _PAUSED)._asdict(),
    )

"""Producers with acks=all that wait while their broker serves others, for `late_followers`.

A leader responds when the in-sync followers have the records. If one of them sends no Fetch,
because it is down, paused or cut off, producers wait until it leaves the in-sync replicas. The
requests of followers show which one it is. If they are not in the capture, the other responses of
the leader show that it is not the leader that stopped. The first Produce requests of a client do
not count: the followers of new partitions, and those of a cluster that starts, need some seconds.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.pauses import all_pauses
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import addresses, cells, client, clients, known, ms, sql
from analysis.display.terminal import counted, moment_text
from analysis.kafka.normal import group_barriers
from analysis.sql.expressions import endpoint, literals
from analysis.sql.failures import OUTAGES
from analysis.sql.latency_breakdown import exchanges_with_parts
from analysis.sql.query import Row

LEAST: Final = 2
"""Requests that wait: one may have another cause."""

_WRITES: Final = (
    "Produce", "OffsetCommit", "TxnOffsetCommit", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn",
    "InitProducerId", "WriteTxnMarkers",
)  # fmt: skip
"""APIs whose responses may wait for followers, too."""

COMMAND: Final = sql("""
  select client_id, broker_ip, broker_port, topics, request_packet, request_time, latency_ms
  from exchanges where api = 'Produce' and acks = -1 and latency_ms is not null
  order by latency_ms desc limit 20""")


def _stalled(least_ms: float) -> str:
    """SQL: Produce requests with acks=all that waited so long, at brokers that sent responses to
    other requests in each other second of this time. Requests behind another one of their
    connection do not count, nor do those that a quota delays."""
    return f"""
      with exchanged as (
        select {endpoint("parts.broker")} as broker, client_id, api, request_packet, request_time,
          response_time, net_ms, min(response_time) filter (api = 'Produce' and acks = -1)
            over (partition by client_id, parts.broker_ip, parts.broker_port) as first_response,
          api not in {literals((*_WRITES, *group_barriers()))} as is_other,
          api = 'Produce' and acks = -1 and net_ms >= {least_ms}
            and coalesce(throttle_time_ms, 0) = 0 as is_stalled
        from {exchanges_with_parts()} as parts where response_time is not null),
      stalled as (from exchanged where is_stalled and request_time >= first_response),
      others as (from exchanged semi join stalled using (broker) where is_other)
      select stalled.broker, stalled.client_id, stalled.request_packet, stalled.request_time,
        stalled.response_time, stalled.net_ms, count(*) as responses
      from stalled join others on stalled.broker = others.broker
        and others.request_time >= stalled.request_time
        and others.response_time <= stalled.response_time
      group by all
      having count(distinct epoch(others.response_time)::bigint) >= stalled.net_ms / 2000
      order by net_ms desc, request_packet, client_id"""


_OUTAGES: Final = f"""
  select {endpoint("broker")} as broker, epoch_ns(first_time) as since, epoch_ns(last_time) as until
  from {OUTAGES}"""


def stalled_producers(case: Case, least_ms: float) -> list[Row]:
    """The rows of `_stalled`, the longest wait first; empty if they are few, or while a broker was
    down or paused, which has its own finding."""
    produce = (row for row in case.answer("latency --by broker,api") if row["api"] == "Produce")
    if not any((row["net_max_ms"] or 0) >= least_ms for row in produce):
        return []
    rows = case.rows(_stalled(max(least_ms, 1)))
    if len(rows) < LEAST:
        return []
    stopped = [
        each for each in (*case.rows(_OUTAGES), *all_pauses(case))
        if case.role(each["broker"]) == "broker"
    ]  # fmt: skip
    rows = [
        row for row in rows
        if not any(
            each["since"] < row["response_time"] and row["request_time"] < each["until"]
            for each in stopped
        )
    ]  # fmt: skip
    return rows if len(rows) >= LEAST else []


def stalled_finding(rows: list[Row]) -> Finding:
    """A finding for the rows of `_stalled`."""
    first = min(rows, key=itemgetter("request_time"))
    longest, brokers = rows[0], list(dict.fromkeys(row["broker"] for row in rows))
    names = list(dict.fromkeys(row["client_id"] for row in rows))
    at = addresses(brokers, "brokers")
    return Finding(
        severity="warning",
        subject=", ".join(f"broker {broker}" for broker in brokers),
        clients=known(names),
        sentence=f"Produce requests with acks=all waited up to {ms(longest['net_ms'])} at {at}, "
        "which responded to other requests meanwhile",
        evidence=f"{counted(len(rows), 'request')} of {clients(names)} waited. The longest, of "
        f"{client(longest['client_id'])}, got its response at "
        f"{moment_text(longest['response_time'])}; before, {longest['broker']} sent "
        f"{counted(longest['responses'], 'response')} to later requests. No request of a follower "
        "in the capture explains it.",
        numbers=cells(longest, "client_id request_packet"),
        cause="a follower of these partitions did not fetch: it was down, paused, or cut off from "
        "the leader; or the disk of the leader stalled",
        side="broker",
        setting="replica.lag.time.max.ms",
        change="Look for a shrinking ISR in the logs of the brokers at this time, and for the "
        "network between them. Producers wait until the follower leaves the in-sync replicas, "
        "after replica.lag.time.max.ms (30 s by default) or broker.session.timeout.ms (9 s).",
        reference="Kafka documentation, Replication (replica.lag.time.max.ms)",
        command=COMMAND,
        requests=len(rows),
        first_packet=first["request_packet"],
        first_time=first["request_time"],
        last_time=max(row["response_time"] for row in rows),
    )

"""Fetches: a consumer asks for data more often than it gets data.

A Fetch waits at the broker until there are `fetch.min.bytes`, for `fetch.max.wait.ms` at most. An
idle consumer with the default of 500 ms sends two requests a second to each broker. Shorter waits
cost requests without any benefit, and with a minimum of 1 byte, the broker responds to each new
record. If a limit of the request is smaller than a batch, the response contains only this batch,
however many records are waiting (KIP-74). Fetches of brokers are excluded.

A broker responds at once to a Fetch for an offset after the high watermark, as if the log had been
truncated (Kafka's DelayedFetch). A new leader starts with an older high watermark, which does not
advance while fewer replicas are in sync than min.insync.replicas (KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import (
    Advice,
    capital,
    client,
    clients,
    ms,
    of_ends,
    percent,
    rows_by,
    share,
)
from analysis.display.terminal import counted
from analysis.kafka.client_ids import is_broker
from analysis.sql.expressions import PER_SECOND
from analysis.sql.query import Row

CONNECTIONS: Final = f"""
  select client_id, count(*) as requests, {PER_SECOND} as per_second from exchanges
  where api in ('Fetch', 'ShareFetch') and status = 'answered'
  group by client_id, connection_id"""
"""SQL: the Fetches of each connection, which the answer `fetches` counts, too."""

LIMITED: Final = """
  with filled as (
    select connection_id, correlation_id, response_time,
      bool_or(last_offset + 1 < high_watermark) as has_more,
      bool_or(last_offset + 1 < high_watermark and bytes >= max_bytes) as is_full
    from partitions where api = 'Fetch' and bytes > 0 group by all)
  select client_id, count(*) as responses, count(*) filter (is_full) as of_partition
  from exchanges join filled using (connection_id, correlation_id, response_time)
  where is_full or (has_more and record_bytes >= max_bytes) group by client_id"""
"""SQL: responses of each client that reach a limit of the request, although more records wait."""


_REFERENCE: Final = "Kafka documentation: Consumer Configs"
_EMPTY: Final = Advice(
    "fetch.max.wait.ms is shorter than the time between records",
    "client", "fetch.max.wait.ms=500",
    "Set fetch.max.wait.ms to 500, the default, or higher.",
    _REFERENCE,
)  # fmt: skip
_AT_ONCE: Final = Advice(
    "the consumer has read up to an offset after the high watermark of a new leader, which does "
    "not advance while fewer replicas are in sync than min.insync.replicas",
    "broker", "min.insync.replicas",
    "Bring the missing replicas back: see replication and leadership.",
    "KIP-966; Kafka documentation: Topic Configs, min.insync.replicas",
)  # fmt: skip
_NO_MINIMUM: Final = Advice(
    "fetch.min.bytes is 0: the broker responds at once, even without records",
    "client", "fetch.min.bytes=1",
    "Set fetch.min.bytes to 1, the default, or higher.",
    _REFERENCE,
)  # fmt: skip
_SMALL: Final = Advice(
    "fetch.min.bytes is 1, the default: the broker responds as soon as a batch arrives",
    "client", "fetch.min.bytes=50000",
    "Raise fetch.min.bytes if the consumer can wait up to fetch.max.wait.ms.",
    _REFERENCE,
)  # fmt: skip
_PARTITION_LIMIT: Final = Advice(
    "the limits of the requests are too small: a response has only one batch, or a few",
    "client", "max.partition.fetch.bytes=1048576",
    "Raise max.partition.fetch.bytes and fetch.max.bytes; the defaults are 1,048,576 and "
    "52,428,800.",
    _REFERENCE,
)  # fmt: skip
_RESPONSE_LIMIT: Final = _PARTITION_LIMIT._replace(setting="fetch.max.bytes=52428800")

_NOTHING: Final = (_EMPTY, _AT_ONCE, _NO_MINIMUM)
"""Advice on responses without records."""

_RESULTS: Final = {
    **dict.fromkeys(_NOTHING, "mostly empty responses to {} fetches"),
    _SMALL: "mostly small responses to {} fetches",
    _PARTITION_LIMIT: "few records at a time, although more are waiting",
    _RESPONSE_LIMIT: "few records at a time, although more are waiting",
}
"""What consumers get."""


@rule(
    question="Do consumers fetch too often for the data that they get?",
    place=16,
    rests_on="fetches",
    thresholds=(
        Threshold("per_second", 20, "requests/s", "Fetches of a client, and of one of its "
                  "connections. An idle consumer sends 2 a second to each of its brokers, and so "
                  "does each of several consumers with one client id."),
        Threshold("empty_percent", 80, "%", "Share of responses without records: a warning."),
        Threshold("small_percent", 80, "%", "Share of responses with less than 1,024 bytes, of "
                  "those with records: a note. A request costs a broker about as much as a few kB "
                  "of records."),
        Threshold("limited_percent", 80, "%", "Share of responses that reach a limit although more "
                  "records are waiting, of those with records: a warning."),
        Threshold("limited_bytes", 100_000, "bytes", "Median size of the records of these "
                  "responses. The default of max.partition.fetch.bytes is 1 MB: a consumer that "
                  "catches up reaches it."),
        Threshold("requests", 100, "requests", "Smallest sample, also of the connection."),
    ),
)  # fmt: skip
def fetches(case: Case, limits: Limits) -> Iterator[Finding]:
    """Consumers with many empty, limited or small responses, by the answer `fetches`."""
    busy = {
        row["client_id"] for row in case.rows(CONNECTIONS)
        if _is_load(row, limits) and not is_broker(row["client_id"])
    }  # fmt: skip
    limited = {row["client_id"]: row for row in (case.rows(LIMITED) if busy else ())}
    alike: dict[Advice, list[Row]] = {}
    for row in case.answer("fetches --by client_id") if busy else ():
        if row["client_id"] in busy and _is_load(row, limits):
            own = row | {"waiting": limited.get(row["client_id"])}
            if advice := _advice(own, limits):
                alike.setdefault(advice, []).append(own)
    for advice, rows in alike.items():
        yield _finding(rows, advice)


def _is_load(row: Row, limits: Limits) -> bool:
    is_frequent = row["per_second"] is not None and row["per_second"] >= limits["per_second"]
    return bool(is_frequent and row["requests"] >= limits["requests"])


def _advice(row: Row, limits: Limits) -> Advice | None:
    filled, limited = row["requests"] - row["empty"], row["waiting"]
    if share(row["empty"], row["requests"]) >= limits["empty_percent"]:
        return _reason(row)
    if (
        limited is not None
        and share(limited["responses"], filled) >= limits["limited_percent"]
        and row["bytes_p50"] < limits["limited_bytes"]
    ):
        is_of_partition = 2 * limited["of_partition"] >= limited["responses"]
        return _PARTITION_LIMIT if is_of_partition else _RESPONSE_LIMIT
    return _SMALL if share(row["small"], filled) >= limits["small_percent"] else None


def _reason(row: Row) -> Advice:
    """Why responses have no records. A broker waits until it has fetch.min.bytes, for
    fetch.max.wait.ms at most."""
    if row["min_bytes"] == "0":
        return _NO_MINIMUM
    longest_ms, *_ = (row["max_wait_ms"] or "0").split(", ")
    return _AT_ONCE if 2 * (row["wait_p50_ms"] or 0) < float(longest_ms) else _EMPTY


def _finding(rows: list[Row], advice: Advice) -> Finding:
    """A finding for consumers with the same cause, that with the most requests first."""
    row, names = rows[0], [*rows_by(rows, "client_id")]
    is_one, requests = len(rows) == 1, sum(row["requests"] for row in rows)
    does = f"gets {_RESULTS[advice]}" if is_one else f"get {_RESULTS[advice]}"
    rate = f"{max(row['per_second'] for row in rows):,.0f} requests a second"
    most = f" Most: {client(row['client_id'])}, with {row['requests']:,}."
    return Finding(
        severity="note" if advice is _SMALL else "warning",
        **of_ends(rows, "client_id requests per_second empty small limited bytes_p50"),
        sentence=f"{capital(clients(names))} {does.format('its' if is_one else 'their')}: "
        + (rate if is_one else f"up to {rate} each"),
        evidence=f"{counted(requests, 'Fetch')}.{'' if is_one else most} {_detail(row, advice)}",
        command="fetches --by client_id",
        requests=requests,
        **advice._asdict(),
    )


def _detail(row: Row, advice: Advice) -> str:
    """What the responses to a consumer show, and the settings of its requests."""
    if advice in _NOTHING:
        return (
            f"{percent(share(row['empty'], row['requests']))} of the responses have no records. "
            f"The broker waited {ms(row['wait_p50_ms'])} for them (median). fetch.max.wait.ms of "
            f"the requests: {row['max_wait_ms']}; fetch.min.bytes: {row['min_bytes']}."
        )
    if advice is _SMALL:
        return (
            f"{counted(row['requests'] - row['empty'], 'response')} with records, the median "
            f"{row['bytes_p50']:,.0f} bytes. fetch.min.bytes of the requests: {row['min_bytes']}."
        )
    return (
        f"{counted(row['waiting']['responses'], 'response')} reached a limit of the request while "
        f"more records waited, the median {row['bytes_p50']:,.0f} bytes. "
        f"max.partition.fetch.bytes of the requests: {row['partition_max_bytes']}; "
        f"fetch.max.bytes: {row['max_bytes']}."
    )

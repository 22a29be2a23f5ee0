"""Producers: whether idempotent and transactional ones are healthy.

An idempotent producer (KIP-98) has an id and an epoch, and numbers its records in each partition;
so a broker can tell what came twice from what is missing, and so can a capture. A newer producer of
the same transactional id gets a higher epoch, and the older one is fenced.

A transaction is a span: it begins with what it first writes (since KIP-890 nothing announces it; a
broker, or before it the producer, adds the partition), and it ends when the producer is told so
(EndTxn), or when brokers write markers without being asked: its time was up, or it was fenced. The
epoch grows with every transaction since KIP-890, and with every end that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import ms, shaped
from analysis.sql.query import Tables, asking
from dissector.errors import DissectorError
from dissector.tables import TIME, TableColumn

if TYPE_CHECKING:
    import pandas as pd

_TEXT, _COUNT = pa.string(), pa.int64()

_WHO: Final = (
    TableColumn("client_id", _TEXT, "client, as it calls itself"),
    TableColumn("transactional_id", _TEXT, "name of the producer; null: it has no transactions"),
    TableColumn("producer_id", _COUNT, "its id"),
)

COLUMNS: Final = (
    *_WHO,
    TableColumn("first_epoch", _COUNT, "its first epoch in the capture"),
    TableColumn("last_epoch", _COUNT, "its highest epoch"),
    TableColumn("batches", _COUNT, "batches that it produced, with those sent again"),
    TableColumn("records", _COUNT, "records in them"),
    TableColumn("resent", _COUNT, "batches that it had sent before"),
    TableColumn("gaps", _COUNT, "places where sequence numbers are missing; lost by the capture?"),
    TableColumn("missing", _COUNT, "records that are missing there"),
    TableColumn("refused", _COUNT, "batches out of order, of an unknown producer, or repeated"),
    TableColumn("fenced", _COUNT, "times that it was told that its epoch is over"),
    TableColumn("committed", _COUNT, "transactions that committed"),
    TableColumn("aborted", _COUNT, "transactions that it aborted"),
    TableColumn("ended_by_broker", _COUNT, "transactions that brokers aborted by themselves"),
    TableColumn("unfinished", _COUNT, "transactions that failed, or of which no end is seen"),
    TableColumn("longest_ms", pa.float64(), "longest of its transactions", "ms"),
    TableColumn("first_time", TIME, "first time that it is heard of"),
    TableColumn("last_time", TIME, "last time"),
)

TRANSACTION_COLUMNS: Final = (
    *_WHO,
    TableColumn("producer_epoch", _COUNT, "its epoch"),
    TableColumn("start_time", TIME, "first time that something became part of it"),
    TableColumn("end_time", TIME, "when its end was told; null: it is not seen"),
    TableColumn("duration_ms", pa.float64(), "from the one to the other", "ms"),
    TableColumn(
        "outcome", _TEXT, "committed, aborted, aborted by the broker, failed, or open: no end seen"
    ),
    TableColumn("error", _TEXT, "what the broker answered to the last attempt to end it"),
    TableColumn("partitions", _COUNT, "partitions that it wrote to"),
    TableColumn("records", _COUNT, "records that it wrote"),
    TableColumn("bytes", _COUNT, "size of their batches", "bytes"),
    TableColumn("group_id", _TEXT, "group whose offsets it commits"),
)

GAP_COLUMNS: Final = (
    *_WHO,
    TableColumn("producer_epoch", _COUNT, "its epoch"),
    TableColumn("topic", _TEXT, "name of the topic"),
    TableColumn("partition", pa.int32(), "index of the partition"),
    TableColumn("time", TIME, "when the batch behind the gap was sent"),
    TableColumn("expected", _COUNT, "sequence number that was to follow"),
    TableColumn("found", _COUNT, "sequence number that followed"),
)

OTHER_COLUMNS: Final = MappingProxyType(
    {"--show transactions": TRANSACTION_COLUMNS, "--show gaps": GAP_COLUMNS}
)

REFUSED: Final = "(45, 46, 59)"
"""OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID."""
FENCED: Final = "(47, 90)"
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""

_WRAP: Final = 1 << 31
"""Sequence numbers begin again at 0 behind 2^31 - 1."""

_ID: Final = "producer_id, producer_epoch"
_LOG: Final = f"{_ID}, topic, partition"


def producers(tables: Tables, *, show: str = "producers") -> pd.DataFrame:
    """Idempotent and transactional producers, those with trouble first; columns: `COLUMNS`.

    Needs batches and transactions. `show`: "producers"; "transactions", a row for each, in order of
    time, with `TRANSACTION_COLUMNS`; or "gaps", a row for each, with `GAP_COLUMNS`.
    Raises DissectorError for another `show`.
    """
    if show not in _SHOWN:
        raise DissectorError(f"show {show} is none of {', '.join(_SHOWN)}")
    query, columns = _SHOWN[show]
    with asking(tables, ("batches", "transactions")) as ask:
        return shaped(ask(query), columns)


_PRODUCED: Final = "(from batches where api = 'Produce' and producer_id is not null)"
"""SQL: the batches of producers that have an id."""

_NAMES: Final = f"""(
  with told as (
    select coalesce(given_producer_id, producer_id) as producer_id, transactional_id,
      -- AddPartitionsToTxn may be of a broker, since KIP-890; these only producers send.
      case when api in ('InitProducerId', 'AddOffsetsToTxn', 'TxnOffsetCommit', 'EndTxn')
        then client_id end as client_id, (0, null, nth) as place
    from transactions
    union all by name
    select producer_id, client_id, (1, time, nth) as place from {_PRODUCED})
  select producer_id, arg_min(client_id, place) as client_id,
    arg_min(transactional_id, place) as transactional_id
  from told where producer_id is not null group by all)"""
"""SQL: the client id and the transactional id of each producer id, as far as they are told."""

_HEARD: Final = f"""(
  select {_ID}, time, error_code, (time, 0, nth) as place from {_PRODUCED}
  union all
  select given_producer_id, given_producer_epoch, time, error_code, (time, 1, nth)
  from transactions where given_producer_id is not null and api = 'InitProducerId'
  union all
  select {_ID}, time, error_code, (time, 2, nth)
  from transactions where producer_id is not null and api != 'WriteTxnMarkers')"""
"""SQL: each time that a producer is heard of; `place` orders them."""

_GAPS: Final = f"""(
  with steps as (
    select *, base_sequence - lag(base_sequence) over in_time < {-(_WRAP // 2)} as wraps
    from {_PRODUCED}
    where base_sequence is not null and record_count is not null and topic is not null
      and partition is not null
    window in_time as (partition by {_LOG} order by time, nth)),
  numbered as (
    select *, base_sequence + {_WRAP} * sum(coalesce(wraps, false)::bigint) over (
      partition by {_LOG} order by time, nth rows unbounded preceding) as first
    from steps),
  once as (
    from numbered
    qualify row_number() over (partition by {_LOG}, first order by time, nth) = 1),
  followed as (
    select *, max(first + record_count) over (
      partition by {_LOG} order by first rows between unbounded preceding and 1 preceding) as due
    from once)
  select {_LOG}, time, nth, due % {_WRAP} as expected, base_sequence as found,
    (first - due) % {_WRAP} as missing
  from followed where first > due)"""
"""SQL: sequence numbers that no batch has, between others of the producer in the partition."""

_ACTIVITY: Final = f"""(
  select {_ID}, time, (time, 0, nth) as place,
    coalesce(topic, '') || '/' || partition as wrote_to, record_count as records, bytes,
    null as group_id
  from {_PRODUCED} where is_transactional and error_code = 0
  union all
  select {_ID}, time, (time, 1, nth), null, null, null, group_id from transactions
  where api in ('AddPartitionsToTxn', 'AddOffsetsToTxn', 'TxnOffsetCommit') and error_code = 0
    and not coalesce(verify_only, false))"""
"""SQL: what became part of transactions."""

_ENDS: Final = f"""(
  with ended as (
    from transactions
    where api in ('EndTxn', 'WriteTxnMarkers') and error_code = 0 and committed is not null),
  bumped as (
    select {_ID}, time, response_time, api, committed, 0 as source, nth from ended
    -- The epoch that the transaction had is one less where its end has raised it.
    union all
    select producer_id, producer_epoch - 1, time, response_time, api, committed, 1, nth
    from ended where api = 'WriteTxnMarkers')
  select {_ID}, time as told_time, response_time as end_time,
    case when committed then 'committed' when api = 'EndTxn' then 'aborted'
      else 'aborted by the broker' end as outcome
  from bumped
  qualify row_number() over (partition by {_ID}, time order by api, source, nth) = 1)"""
"""SQL: what ends transactions."""

_FAILED: Final = f"""(
  select {_ID}, time as attempt, arg_min(coalesce(error, 'no answer'), nth) as error
  from transactions where api = 'EndTxn' and coalesce(error_code != 0, true) group by all)"""
"""SQL: attempts to end a transaction that failed."""

TRANSACTIONS: Final = f"""(
  with until as (
    select did.*, end_time, outcome from {_ACTIVITY} as did asof left join {_ENDS} as ends
      on did.producer_id = ends.producer_id and did.producer_epoch = ends.producer_epoch
        and did.time <= ends.told_time),
  tried as (
    select until.*, attempt, error from until asof left join {_FAILED} as failed
      on until.producer_id = failed.producer_id and until.producer_epoch = failed.producer_epoch
        and until.time <= failed.attempt),
  spans as (
    select {_ID}, end_time, min(time) as start_time, min(place) as place,
      arg_min(outcome, place) as told, arg_min(attempt, place) as attempt,
      arg_min(error, place) as tried, count(distinct wrote_to) as partitions,
      coalesce(sum(records), 0) as records, coalesce(sum(bytes), 0) as bytes,
      arg_min(group_id, place) as group_id
    from tried where producer_id is not null and producer_epoch is not null and time is not null
    group by all)
  select spans.* exclude (told, tried, attempt), client_id, transactional_id,
    case when coalesce(told != 'aborted by the broker' and attempt > end_time, false) then null
      else tried end as error,
    coalesce(told, case when error is null then 'open' else 'failed' end) as outcome,
    {ms("start_time", "end_time")} as duration_ms
  from spans left join {_NAMES} using (producer_id))"""
"""SQL: a row for each transaction that something became part of."""

_COUNTS: Final = (
    "batches", "records", "resent", "refused", "gaps", "missing", "committed", "aborted",
    "ended_by_broker", "unfinished",
)  # fmt: skip

_PRODUCERS: Final = f"""
  with heard as (
    select producer_id, coalesce(arg_min(producer_epoch, place), 0) as first_epoch,
      max(producer_epoch) as last_epoch, count(*) filter (error_code in {FENCED}) as fenced,
      min(time) as first_time, max(time) as last_time, min(place) as place
    from {_HEARD} group by all),
  wrote as (
    select producer_id, count(*) as batches, coalesce(sum(record_count), 0) as records,
      count(*) - count(distinct ({_LOG}, base_sequence)) as resent,
      count(*) filter (error_code in {REFUSED}) as refused
    from {_PRODUCED} group by all),
  gaps as (
    select producer_id, count(*) as gaps, sum(missing) as missing from {_GAPS} group by all),
  ended as (
    select producer_id, count(*) filter (outcome = 'committed') as committed,
      count(*) filter (outcome = 'aborted') as aborted,
      count(*) filter (outcome = 'aborted by the broker') as ended_by_broker,
      count(*) filter (outcome in ('failed', 'open')) as unfinished,
      max(duration_ms) as longest_ms
    from {TRANSACTIONS} group by all),
  counts as (
    select heard.* exclude (place), place, longest_ms, client_id, transactional_id,
      {", ".join(f"coalesce({name}, 0) as {name}" for name in _COUNTS)}
    from heard left join wrote using (producer_id) left join gaps using (producer_id)
      left join ended using (producer_id) left join {_NAMES} using (producer_id))
  from counts order by fenced + refused + gaps + ended_by_broker + unfinished desc, place"""

_SHOWN: Final[Mapping[str, tuple[str, tuple[TableColumn, ...]]]] = MappingProxyType(
    {
        "producers": (_PRODUCERS, COLUMNS),
        "transactions": (f"from {TRANSACTIONS} order by place", TRANSACTION_COLUMNS),
        "gaps": (
            f"from {_GAPS} left join {_NAMES} using (producer_id) order by time, nth",
            GAP_COLUMNS,
        ),
    }
)
"""Query and columns of what can be shown."""

"""Producers: whether idempotent and transactional producers are healthy.

    $ kafka-dissector producers captures/kafka-4-transactions.pcap.zst

**How to read it.** A row is a producer id. `resent` batches were sent again, which is harmless with
idempotence. `gaps` are missing sequence numbers. `refused` and `fenced` count failures. `--show
transactions` lists each transaction with its outcome.

**What to do.** If producers are fenced, two instances use the same transactional.id, or one paused
for too long. If brokers ended transactions, raise transaction.timeout.ms, or make transactions
shorter. Gaps without lost packets in `quality` are lost records: see `duplicates`.

**How it is computed.** An idempotent producer (KIP-98) has an id and an epoch, and numbers its
records in each partition. A broker, and this answer, can therefore distinguish repeated records
from missing ones. A newer producer with the same transactional id gets a higher epoch, which fences
the older one.

A transaction starts with its first write. Before KIP-890, the producer announces it by adding the
partition; since then, the broker adds the partition itself. The transaction ends with the response
to EndTxn, or when brokers write markers on their own, because it timed out or its producer was
fenced. Since KIP-890, every transaction raises the epoch, and so does a broker that ends one.

**Limitations.** Packets that are missing from the capture also appear as gaps, and so do batches to
a leader that is not in the capture. The markers that brokers write are visible only if connections
between brokers are in the capture. If a capture contains only these, and not the requests of the
producer to its coordinator, transactions that brokers aborted on their own count as `aborted`. A
transaction that began before the capture has no start.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Option, Tables, Variant, answer, select
from analysis.columns import Column, first_and_last
from analysis.sql.expressions import EXCHANGE, ms_between

_PRODUCER: Final = (
    Column("client_id", "string", "client id"),
    Column("transactional_id", "string", "transactional id; null without transactions"),
    Column("producer_id", "int64", "producer id"),
)

TRANSACTION_COLUMNS: Final = (
    *_PRODUCER,
    Column("producer_epoch", "int64", "producer epoch"),
    Column("start_time", "time", "time of the first write or added partition"),
    Column("end_time", "time", "time of the end; null if the capture does not contain it"),
    Column("duration_ms", "double", "time from start to end", "ms"),
    Column(
        "outcome",
        "string",
        "committed, aborted, aborted by the broker, failed, or open (no end captured)",
    ),
    Column("error", "string", "error of the last attempt to end it; null if it succeeded"),
    Column("partitions", "int64", "partitions that it wrote to"),
    Column("records", "int64", "records that it wrote"),
    Column("bytes", "int64", "size of their batches", "bytes"),
    Column("group_id", "string", "group whose offsets it commits"),
)

GAP_COLUMNS: Final = (
    *_PRODUCER,
    Column("producer_epoch", "int64", "producer epoch"),
    Column("topic", "string", "name of the topic"),
    Column("partition", "int32", "index of the partition"),
    Column("time", "time", "time of the batch after the gap"),
    Column("expected", "int64", "expected sequence number"),
    Column("actual", "int64", "sequence number of the batch after the gap"),
)

REFUSED: Final = "(45, 46, 59)"
"""OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID."""
FENCED: Final = "(47, 90)"
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""

_WRAP: Final = 1 << 31
"""Sequence numbers restart at 0 after 2^31 - 1."""

_ID: Final = "producer_id, producer_epoch"
_LOG: Final = f"{_ID}, topic, partition"


@answer(
    question="Are idempotent and transactional producers healthy?",
    place=10,
    tables=("batches", "transactions"),
    options=(Option("show", "Show producers, their transactions, or gaps in sequence numbers"),),
    rows="idempotent or transactional producers",
    columns=(
        *_PRODUCER,
        Column("first_epoch", "int64", "first epoch in the capture"),
        Column("last_epoch", "int64", "highest epoch"),
        Column("batches", "int64", "produced batches, including repeated ones"),
        Column("records", "int64", "records in these batches"),
        Column("resent", "int64", "repeated batches"),
        Column("gaps", "int64", "gaps in sequence numbers; the capture may have lost batches"),
        Column("missing", "int64", "records missing in the gaps"),
        Column("refused", "int64", "batches out of order, of an unknown producer, or repeated"),
        Column("fenced", "int64", "responses that report an outdated epoch"),
        Column("committed", "int64", "committed transactions"),
        Column("aborted", "int64", "transactions that the producer aborted"),
        Column("ended_by_broker", "int64", "transactions that brokers aborted on their own"),
        Column("unfinished", "int64", "transactions that failed, or have no end in the capture"),
        Column("longest_ms", "double", "longest transaction", "ms"),
        *first_and_last("request"),
    ),
    variants=(
        Variant("show", "transactions", TRANSACTION_COLUMNS, rows="transactions"),
        Variant("show", "gaps", GAP_COLUMNS, rows="gaps in sequence numbers"),
    ),
    essential=(
        "client_id transactional_id producer_id gaps refused fenced resent aborted unfinished "
        "outcome duration_ms start_time topic partition time expected actual"
    ),
    useful="ended_by_broker missing records committed",
)
def producers(tables: Tables, *, show: str = "producers") -> ArrowTable:
    """Idempotent and transactional producers; those with problems first.

    With ``show="transactions"`` or ``show="gaps"``, a row for each of them, in order of time.
    """
    return select(
        tables,
        {
            "producers": _PRODUCERS,
            "transactions": f"from {TRANSACTIONS} order by place",
            "gaps": f"from {_GAPS} left join {NAMES} using (producer_id) order by time, nth",
        }[show],
    )


_PRODUCED: Final = "(from batches where api = 'Produce' and producer_id is not null)"
"""SQL: produced batches with a producer id."""

NAMES: Final = f"""(
  with names as (
    select coalesce(given_producer_id, producer_id) as producer_id, transactional_id,
      -- Since KIP-890 brokers send AddPartitionsToTxn, too; only producers send these.
      case when api in ('InitProducerId', 'AddOffsetsToTxn', 'TxnOffsetCommit', 'EndTxn')
        then client_id end as client_id, (0, null, nth) as place
    from transactions
    union all by name
    select producer_id, client_id, (1, time, nth) as place from {_PRODUCED})
  select producer_id, arg_min(client_id, place) as client_id,
    arg_min(transactional_id, place) as transactional_id
  from names where producer_id is not null group by all)"""
"""SQL: the client id and the transactional id of each producer id, if known."""

_APPEARANCES: Final = f"""(
  select {_ID}, {EXCHANGE}, error_code, (time, 0, nth) as place from {_PRODUCED}
  union all
  select given_producer_id, given_producer_epoch, {EXCHANGE}, error_code, (time, 1, nth)
  from transactions where given_producer_id is not null and api = 'InitProducerId'
  union all
  select {_ID}, {EXCHANGE}, error_code, (time, 2, nth)
  from transactions where producer_id is not null and api != 'WriteTxnMarkers')"""
"""SQL: each appearance of a producer; `place` orders them."""

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
  select {_LOG}, time, nth, due % {_WRAP} as expected, base_sequence as actual,
    (first - due) % {_WRAP} as missing
  from followed where first > due)"""
"""SQL: missing sequence numbers between batches of a producer in a partition."""

_ACTIVITY: Final = f"""(
  select {_ID}, time, (time, 0, nth) as place,
    coalesce(topic, '') || '/' || partition as wrote_to, record_count as records, bytes,
    null as group_id
  from {_PRODUCED} where is_transactional and error_code = 0
  union all
  select {_ID}, time, (time, 1, nth), null, null, null, group_id from transactions
  where api in ('AddPartitionsToTxn', 'AddOffsetsToTxn', 'TxnOffsetCommit') and error_code = 0
    and not coalesce(verify_only, false))"""
"""SQL: batches, partitions and offsets that became part of transactions."""

COORDINATED: Final = f"""(
  select coalesce(given_producer_id, producer_id) as producer_id from transactions
  where api in ('InitProducerId', 'AddOffsetsToTxn', 'EndTxn')
    and coalesce(given_producer_id, producer_id) is not null
  union
  select producer_id from transactions semi join {_PRODUCED} using (producer_id, client_id)
  where api = 'AddPartitionsToTxn')"""
"""SQL: the producers whose requests to their coordinator are in the capture."""

_ENDS: Final = f"""(
  with ended as (
    from transactions
    where api in ('EndTxn', 'WriteTxnMarkers') and error_code = 0 and committed is not null),
  raised as (
    select producer_id, given_producer_epoch as producer_epoch, 'WriteTxnMarkers' as api
    from ended where api = 'EndTxn' and given_producer_epoch > producer_epoch),
  bumped as (
    select {_ID}, time, response_time, api, committed, 0 as source, nth
    -- If the end raised the epoch, the transaction had the epoch before. The next one has this
    -- epoch, and may begin before the markers are written.
    from ended anti join raised using (producer_id, producer_epoch, api)
    union all
    select producer_id, producer_epoch - 1, time, response_time, api, committed, 1, nth
    from ended where api = 'WriteTxnMarkers')
  select {_ID}, time as request_time, response_time as end_time, api = 'EndTxn' as is_answered,
    case when committed then 'committed'
      when api = 'EndTxn' or producer_id not in {COORDINATED} then 'aborted'
      else 'aborted by the broker' end as outcome
  from bumped
  qualify row_number() over (partition by {_ID}, time order by api, source, nth) = 1)"""
"""SQL: the ends of transactions."""

_FAILED: Final = f"""(
  select {_ID}, time as attempt, arg_min(coalesce(error, 'no answer'), nth) as error
  from transactions where api = 'EndTxn' and coalesce(error_code != 0, true) group by all)"""
"""SQL: attempts to end a transaction that failed."""

TRANSACTIONS: Final = f"""(
  with until as (
    select did.*, end_time, outcome, is_answered
    from {_ACTIVITY} as did asof left join {_ENDS} as ends
      on did.producer_id = ends.producer_id and did.producer_epoch = ends.producer_epoch
        and did.time <= ends.request_time),
  spans as (
    select {_ID}, end_time, min(time) as start_time, min(place) as place,
      arg_min(outcome, place) as end_outcome, bool_or(is_answered) as is_answered,
      count(distinct wrote_to) as partitions,
      coalesce(sum(records), 0) as records, coalesce(sum(bytes), 0) as bytes,
      arg_min(group_id, place) as group_id
    from until where producer_id is not null and producer_epoch is not null and time is not null
    group by all),
  bounded as (
    -- A producer that the broker fenced may try to end its transaction later.
    select *, epoch_ns(case when coalesce(end_outcome = 'aborted by the broker', true)
        then lead(start_time) over (partition by {_ID} order by start_time) else end_time end)
      as attempts_end
    from spans),
  attempts as (
    select bounded.*, case when attempt >= start_time and not coalesce(is_answered, false)
        then error end as error
    from bounded asof left join {_FAILED} as failed
      on bounded.producer_id = failed.producer_id
        and bounded.producer_epoch = failed.producer_epoch
        and coalesce(attempts_end, {2**63 - 1}) > epoch_ns(failed.attempt))
  select attempts.* exclude (end_outcome, is_answered, attempts_end), client_id, transactional_id,
    coalesce(end_outcome, case when error is null then 'open' else 'failed' end) as outcome,
    {ms_between("start_time", "end_time")} as duration_ms
  from attempts left join {NAMES} using (producer_id))"""
"""SQL: a row for each transaction with at least one batch, partition or offset."""

_COUNTS: Final = (
    "batches", "records", "resent", "refused", "gaps", "missing", "committed", "aborted",
    "ended_by_broker", "unfinished",
)  # fmt: skip

_PRODUCERS: Final = f"""
  with appearances as (
    select producer_id, arg_min(producer_epoch, place) as first_epoch,
      max(producer_epoch) as last_epoch,
      count(distinct ({EXCHANGE})) filter (error_code in {FENCED}) as fenced,
      min(time) as first_time, max(time) as last_time, min(place) as place
    from {_APPEARANCES} group by all),
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
    select appearances.* exclude (place), place, longest_ms, client_id, transactional_id,
      {", ".join(f"coalesce({name}, 0) as {name}" for name in _COUNTS)}
    from appearances left join wrote using (producer_id) left join gaps using (producer_id)
      left join ended using (producer_id) left join {NAMES} using (producer_id))
  from counts order by fenced + refused + gaps + ended_by_broker + unfinished desc, place"""

"""Skew: partitions, brokers and keys with more load than others, and keys on unexpected partitions.

A topic is as fast as its busiest partition: one broker stores it, and one member of a group reads
it. A frequent key, or a producer with a different partitioner, makes the load of partitions
unequal.

    $ kafka-dissector skew captures/kafka-4-skewed.pcap.zst
    $ kafka-dissector skew captures/kafka-4-skewed.pcap.zst --show keys --top 3
    $ kafka-dissector skew captures/kafka-4-skewed.pcap.zst --show partitioners

**How to read it.** `ratio` is the number of bytes of a partition divided by the mean of the
partitions of its topic. For a broker, the mean is that of all brokers in the capture. A partition
or broker with a ratio of at least 2 is `hot`. With `--show keys`, `share_percent` is the
share of a key in the records of its topic. With `--show partitioners`, `misplaced` counts records
that are not in the partition that the default partitioner would choose for their key.

**What to do.** If one key has most records, choose a key with more values, or split the key. If
records are misplaced, all producers of the topic need the same partitioner: librdkafka uses CRC-32
by default, and the Java client murmur2 (`partitioner=murmur2_random` in librdkafka). Otherwise the
records of one key are in several partitions, so their order is lost, and joins and compacted topics
are wrong. If the load of brokers is unequal, reassign partitions or leaders (`leadership`).

**How it is computed.** Bytes are those of batches in Produce requests without an error, and in
responses to consumers. The number of partitions is that of Metadata, or the highest partition in
the capture plus 1 if that is larger. A capture at one broker does not show the load of others. The
mean therefore covers the partitions with requests in the capture, and those that Metadata assigns
to the leaders of these partitions. Keys are those of produced records or, if the capture contains
none of the topic, of fetched records, each counted once. The default partitioner is murmur2 of the
key modulo the number of partitions; records without a key do not count.

**Limitations.** In a short capture, a burst may look like a skew. If the number of partitions of a
topic was changed, older records count as misplaced. If the application chooses partitions itself,
misplaced records are not an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from analysis.answers import ArrowTable, Option, Tables, Variant, answer, select
from analysis.columns import Column, columns_of
from analysis.sql.expressions import CLIENT_IDS, endpoint

if TYPE_CHECKING:
    import duckdb

HOT: Final = 2
"""Ratio to the mean from which a partition or broker is hot."""

_TOPIC: Final = columns_of("partitions", "topic")

BROKER_COLUMNS: Final = (
    Column("broker", "string", "address and port of the broker"),
    Column("hot", "bool", "whether the ratio is at least 2"),
    Column("ratio", "double", "bytes, divided by the mean of the brokers"),
    Column("share_percent", "double", "share of the bytes of all brokers", "%"),
    Column("produced_bytes", "int64", "size of produced batches", "bytes"),
    Column("fetched_bytes", "int64", "size of batches that consumers fetched", "bytes"),
    Column("partitions", "int64", "partitions with records"),
)

KEY_COLUMNS: Final = (
    *_TOPIC,
    Column("key", "string", "key of the records"),
    Column("share_percent", "double", "share of the records of the topic", "%"),
    Column("records", "int64", "records with this key"),
    Column("partitions", "string", "partitions of these records, separated by commas"),
    Column("default_partition", "int64", "partition that the default partitioner assigns"),
)

PARTITIONER_COLUMNS: Final = (
    *_TOPIC,
    *columns_of("partitions", "client_id"),
    Column("misplaced", "int64", "records in another partition than the default one"),
    Column("misplaced_percent", "double", "share of the records with a key", "%"),
    Column("records", "int64", "records with a key"),
    Column("keys", "int64", "distinct keys"),
    Column("example_key", "string", "a key of a misplaced record"),
    Column("partition", "int32", "partition of that record"),
    Column("default_partition", "int64", "partition that the default partitioner assigns"),
)

_RECORDS: Final = ("records",)


@answer(
    question="Which partitions, brokers and keys are hot, and which keys are on the wrong "
    "partitions?",
    place=21,
    tables=("partitions", "topics", "connections", "exchanges"),
    options=(
        Option(
            "show", "Show partitions, brokers, the most frequent keys, or partitioners of clients"
        ),
        Option("top", "Show this number of keys per topic", needs=("show", "keys")),
    ),
    rows="partitions with records",
    columns=(
        *_TOPIC,
        *columns_of("partitions", "partition"),
        Column("hot", "bool", "whether the ratio is at least 2"),
        Column("ratio", "double", "bytes, divided by the mean of the partitions of the topic"),
        Column("share_percent", "double", "share of the bytes of the topic", "%"),
        Column("produced_bytes", "int64", "size of produced batches", "bytes"),
        Column("produced_records", "int64", "produced records; null if no header has their count"),
        Column("fetched_bytes", "int64", "size of batches that consumers fetched", "bytes"),
        Column("partition_count", "int64", "partitions of the topic"),
        Column("brokers", "string", "addresses of the brokers"),
    ),
    variants=(
        Variant("show", "brokers", BROKER_COLUMNS, rows="brokers with records"),
        Variant("show", "keys", KEY_COLUMNS, _RECORDS, "records with a key"),
        Variant("show", "partitioners", PARTITIONER_COLUMNS, _RECORDS, "records with a key"),
    ),
    essential="broker topic partition client_id key hot ratio share_percent misplaced records",
    useful="produced_bytes fetched_bytes partitions default_partition example_key",
)
def skew(tables: Tables, *, show: str = "partitions", top: int = 20) -> ArrowTable:
    """Partitions with their share in the topic, the highest ratio first; or brokers, or keys."""
    if show == "partitions":
        return select(tables, _PARTITIONS)
    if show == "brokers":
        return select(tables, _BROKERS)
    return _of_keys(cast("duckdb.DuckDBPyConnection", tables), show, top)


_MOVED: Final = f"""(
  select topic, partition, {endpoint("broker")} as broker,
    case when api = 'Produce' then bytes end as produced, record_count,
    case when api != 'Produce' then bytes end as fetched
  from partitions join connections using (connection_id)
  where api in ('Produce', 'Fetch', 'ShareFetch') and coalesce(error_code, 0) = 0 and bytes > 0
    and replica_id is null and topic is not null and partition is not null)"""
"""SQL: produced and fetched bytes, without those of followers."""

_COUNTS: Final = """(
  select topic, greatest(max(known), max(partition)::bigint + 1) as partition_count from (
    select topic, partition, null as known from partitions
    union all by name
    select topic, null as partition, count(distinct partition) as known from topics group by topic)
  where topic is not null group by all)"""
"""SQL: the number of partitions of each topic."""

_OBSERVED: Final = """(
  with leaders as (
    select topic, partition, arg_max(leader, (time, nth)) as leader
    from topics where leader >= 0 group by all),
  requested as (
    select topic, partition from partitions
    where api in ('Produce', 'Fetch', 'ShareFetch') and replica_id is null),
  observed as (
    select topic, partition from leaders
    where leader in (select leader from leaders semi join requested using (topic, partition))
    union from requested)
  select topic, count(*) as observed_count from observed group by topic)"""
"""SQL: the number of partitions of each topic whose load is in the capture, or which have none."""

_RATIO: Final = """
  (coalesce(produced, 0) + coalesce(fetched, 0)) as total,
  total / nullif(sum(total) over whole, 0) as share"""

_PARTITIONS: Final = f"""
  with sums as (
    select topic, partition, sum(produced) as produced, sum(fetched) as fetched,
      sum(record_count) filter (produced is not null) as produced_records,
      string_agg(distinct broker, ', ' order by broker) as brokers
    from {_MOVED} group by all),
  shares as (select *, {_RATIO} from sums window whole as (partition by topic))
  select *, share * observed_count as ratio, ratio >= {HOT} as hot,
    100 * share as share_percent, coalesce(produced, 0) as produced_bytes,
    coalesce(fetched, 0) as fetched_bytes
  from shares left join {_COUNTS} using (topic) left join {_OBSERVED} using (topic)
  order by ratio desc, topic, partition"""

_BROKERS: Final = f"""
  with sums as (
    select broker, sum(produced) as produced, sum(fetched) as fetched,
      count(distinct (topic, partition)) as partitions
    from {_MOVED} group by all),
  shares as (select *, {_RATIO}, count(*) over whole as brokers from sums window whole as ())
  select *, share * brokers as ratio, ratio >= {HOT} as hot, 100 * share as share_percent,
    coalesce(produced, 0) as produced_bytes, coalesce(fetched, 0) as fetched_bytes
  from shares order by ratio desc, broker"""

_KEYS: Final = f"""
  with produced as (
    select topic, partition, key, client_id, nth
    from records left join {CLIENT_IDS} using (connection_id) where api = 'Produce'),
  fetched as (
    select topic, partition, arg_min(key, nth) as key, null as client_id, min(nth) as nth
    from records where api in ('Fetch', 'ShareFetch') and record_kind is null
      and topic not in (select topic from produced where topic is not null)
    group by topic, partition, "offset"),
  keyed as (select * from produced union all select * from fetched)
  select topic, partition, key, client_id, partition_count, count(*) as records, min(nth) as nth,
    sum(count(*)) over (partition by topic) as topic_records
  from keyed join {_COUNTS} using (topic) where partition is not null
  group by topic, partition, key, client_id, partition_count
  qualify key is not null order by min(nth)"""
"""SQL: the number of records of each key in each partition, by client; and of all in the topic."""


def _of_keys(connection: duckdb.DuckDBPyConnection, show: str, top: int) -> ArrowTable:
    """The most frequent keys of each topic, all if `top` is 0; or partitioners of clients."""
    connection.register(_PLACED, _with_default(select(connection, _KEYS)))
    try:
        return select(connection, _frequent(top) if show == "keys" else _PARTITIONERS)
    finally:
        connection.unregister(_PLACED)


def _with_default(keys: ArrowTable) -> ArrowTable:
    """The rows of `_KEYS` with the partition of the default partitioner."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from analysis.kafka.partitioner import default_partitions

    contents = keys["key"].to_pylist()
    counts = keys["partition_count"].to_numpy().astype(np.int64)
    default = pa.array(default_partitions(contents, counts))
    text = pa.array([each.decode("utf-8", "backslashreplace") for each in contents], pa.string())
    misplaced = pc.if_else(pc.not_equal(keys["partition"], default), keys["records"], 0)
    keys = keys.set_column(keys.column_names.index("key"), "key", text)
    return keys.append_column("default_partition", default).append_column("misplaced", misplaced)


_PLACED: Final = "keys_with_default_partition"
"""Name of the rows of `_with_default` in queries."""


def _frequent(top: int) -> str:
    limit = f"qualify row_number() over (partition by topic order by records desc, nth) <= {top}"
    return f"""
      with grouped as (
        select topic, key, sum(records) as records, any_value(topic_records) as topic_records,
          min(nth) as nth,
          array_to_string(list_sort(list_distinct(list(partition))), ', ') as partitions,
          arg_min(default_partition, nth) as default_partition
        from {_PLACED} group by topic, key)
      select *, 100 * records / topic_records as share_percent
      from grouped {limit if top else ""} order by records desc, nth"""


_PARTITIONERS: Final = f"""
  select topic, client_id, sum(misplaced) as misplaced, sum(records) as records,
    100 * sum(misplaced) / sum(records) as misplaced_percent, count(distinct key) as keys,
    arg_min(key, nth) filter (misplaced > 0) as example_key,
    arg_min(partition, nth) filter (misplaced > 0) as partition,
    arg_min(default_partition, nth) filter (misplaced > 0) as default_partition
  from {_PLACED} group by topic, client_id order by sum(misplaced) desc, min(nth)"""
"""SQL: keyed records of each client and topic, and those in an unexpected partition."""

"""Measures: answers of `analysis.answers` over any number of rows, as Spark DataFrames.

They take tables of `kafka_capture`, and have the names, columns and units of the pandas answers,
except that times have microseconds, as in Spark.

An answer's rows for a connection, client or group do not depend on others. So rows are divided into
buckets by connection, client or group, and the pandas code runs on each bucket. Spark combines the
buckets: sums, extremes, exact quantiles. A task has one bucket in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Final, TypeAlias
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from analysis.answers import ANSWERS
from analysis.columns import resolved
from analysis.frames import frame
from analysis.spark.requirements import refuse_connect
from analysis.sql import expressions
from analysis.sql.latency_breakdown import PARTS, latency_parts
from analysis.sql.query import no_tables
from dissector.tables import TABLES, TableColumn

Tables: TypeAlias = Mapping[str, DataFrame]
Bucketed: TypeAlias = Callable[[Mapping[str, pd.DataFrame]], pd.DataFrame]

_PACKED: Final = "bucket int, kind string, content binary"
_KEY: Final = ("connection_id", "correlation_id")


def load(spark: SparkSession, paths: str | Sequence[str], tables: Iterable[str]) -> Tables:
    """Tables of captures, from the registered data source.

    They share one plan, which reads the captures once, when a table is first used. Raises
    DissectorError for a session of Spark Connect.
    """
    refuse_connect(spark)
    given, names = [paths] if isinstance(paths, str) else [*paths], [*tables]
    shared = {"tables": ",".join(names), "plan_id": uuid4().hex}
    source = spark.read.format("kafka_capture").options(**shared)
    return {name: source.option("table", name).load(given) for name in names}


def latency(tables: Tables, *, by: str | Sequence[str] = ("api",)) -> DataFrame:
    """Like `analysis.latency`, without `slowest`. Raises DissectorError."""
    by = _check("latency", by)
    keys = {name: f.col("connection_id") for name in ("exchanges", "batches")}
    columns = [*TABLES["exchanges"].columns, *resolved(PARTS)]
    exact = {**tables, "batches": _with_produced(tables)}
    rows = _grouped_by(_in_buckets(exact, keys, _with_waits, columns), tables, by)
    rows = rows.filter("latency_ms is not null")
    quantiles = [
        f.percentile(name, f.lit(each)).alias(f"{prefix}p{each * 100:.0f}_ms")
        for prefix, name in (("", "latency_ms"), ("net_", "net_ms"))
        for each in expressions.QUANTILES
    ]
    slowest_first = f.struct(-f.coalesce("net_ms", f.lit(-1.0)), "request_time", "request_packet")
    grouped = rows.groupBy(*by).agg(
        f.count(f.lit(1)).alias("count"),
        f.max("latency_ms").alias("max_ms"),
        f.sum((f.col("queue_ms") + f.col("poll_ms") > 0).cast("long")).alias("wait_count"),
        f.max("net_ms").alias("net_max_ms"),
        f.min_by("request_packet", slowest_first).alias("slowest_packet"),
        f.coalesce(f.sum("net_ms"), f.lit(0.0)).alias("total_ms"),
        *quantiles,
    )
    return _shaped(grouped.orderBy(f.desc("total_ms")), "latency", by)


def _with_produced(tables: Tables) -> DataFrame:
    """`batches` with the time of the Produce response as `max_timestamp` of fetched batches, which
    a bucket does not contain: see `analysis.sql.latency_breakdown`."""
    batches, place = tables["batches"], ["topic", "partition", "base_offset"]
    responses = tables["exchanges"].filter("api = 'Produce' and response_time is not null")
    responses = responses.select(
        *_KEY, f.col("request_time_ns").alias("time_ns"), "response_time_ns"
    )
    produced = batches.filter("api = 'Produce' and base_offset is not null")
    written = (
        produced.join(responses, [*_KEY, "time_ns"])
        .groupBy(*place)
        .agg(f.min("response_time_ns").alias("written"))
    )
    time = f.coalesce("written", "max_timestamp_ns")
    time = f.when(f.col("api").isin("Fetch", "ShareFetch"), time).otherwise(
        f.col("max_timestamp_ns")
    )
    return batches.join(written, place, "left").withColumn("max_timestamp_ns", time)


def _with_waits(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    return tables["exchanges"].join(latency_parts(tables))


def throttle(
    tables: Tables, *, by: str | Sequence[str] = ("client_id", "broker", "api")
) -> DataFrame:
    """Like `analysis.throttle`. Raises DissectorError."""
    by = _check("throttle", by)
    keys = {name: f.col("connection_id") for name in ("exchanges", "connections")}
    answer = partial(ANSWERS["throttle"].function, by=by)
    rows = _in_buckets(tables, keys, answer, _columns("throttle", by))
    grouped = rows.groupBy(*by).agg(
        *(_sum(name) for name in ("responses", "total_ms", "honoured", "early", "held", "last")),
        *(f.max(name).alias(name) for name in ("longest_ms", "earliest_ms", "last_time")),
        f.min("first_time").alias("first_time"),
    )
    return _shaped(grouped.orderBy(f.desc("total_ms")), "throttle", by)


def errors(
    tables: Tables, *, by: str | Sequence[str] = ("error", "api", "topic", "client_id")
) -> DataFrame:
    """Like `analysis.errors`. Raises DissectorError."""
    by = _check("errors", by)
    packet = (
        tables["exchanges"]
        .groupBy(*_KEY)
        .agg(f.min_by("response_packet", "request_time_ns").alias("response"))
    )
    rows = _grouped_by(tables["errors"], tables, by).join(packet, [*_KEY], "left")
    rows = rows.withColumn("place", f.concat("topic", f.lit("-"), f.col("partition")))
    first = f.struct("time_ns", *_KEY, "path")
    first_message = f.when(f.col("error_message").isNotNull(), first)
    grouped = rows.groupBy(*by).agg(
        *(
            f.min_by(source, first).alias(name)
            for name, source in (
                ("error_code", "error_code"), ("error", "error"), ("retriable", "retriable"),
                ("first_packet", "response"),
            )
            if name not in by
        ),
        f.min_by("error_message", first_message).alias("message"),
        f.count(f.lit(1)).alias("count"),
        f.countDistinct("response").alias("responses"),
        f.countDistinct("client_ip").alias("clients"),
        f.countDistinct("place").alias("partitions"),
        f.min("time").alias("first_time"),
        f.max("time").alias("last_time"),
    )  # fmt: skip
    return _shaped(grouped.orderBy(f.desc("count")), "errors", by)


def topology(tables: Tables) -> DataFrame:
    """Like `analysis.topology`."""
    ends = tables["connections"].select("connection_id", f.col("client_ip").alias("owner"))
    partitions = tables["partitions"].join(ends, "connection_id", "left")
    keys = {name: f.col("client_ip") for name in ("exchanges", "connections")}
    keys["partitions"] = f.col("owner")
    rows = _in_buckets(
        {**tables, "partitions": partitions}, keys, ANSWERS["topology"].function,
        _columns("topology", ()),
    )  # fmt: skip
    return rows.orderBy("topic", f.desc("action"), f.desc("bytes"))


def groups(tables: Tables) -> DataFrame:
    """Like `analysis.groups`."""
    keys = {"memberships": f.col("group_id")}
    rows = _in_buckets(tables, keys, ANSWERS["groups"].function, _columns("groups", ()))
    return rows.orderBy("start_time", "group_id")


def _check(answer: str, by: str | Sequence[str]) -> tuple[str, ...]:
    """The columns to group by. Raises DissectorError if they are invalid."""
    declaration = ANSWERS[answer]
    declaration.function(no_tables(declaration.tables), by=by)
    return expressions.column_names(by)


def _columns(answer: str, by: Sequence[str]) -> list[TableColumn]:
    """The columns of an answer, after those of `by`, which are text."""
    declared = ANSWERS[answer].columns
    types = {column.name: column for column in (*TABLES["exchanges"].columns, *declared)}
    first = [types.get(name) or TableColumn(name, pa.string(), "") for name in by]
    return [*first, *(column for column in declared if column.name not in by)]


def _shaped(rows: DataFrame, answer: str, by: Sequence[str]) -> DataFrame:
    schema = _spark_schema(_columns(answer, by))
    return rows.select(*(f.col(field.name).cast(field.dataType) for field in schema))


def _sum(name: str) -> Column:
    return f.sum(name).alias(name)


def _grouped_by(rows: DataFrame, tables: Tables, by: Sequence[str]) -> DataFrame:
    """Rows with every column of `by`; see `analysis.sql.expressions`."""
    for name in by:
        if name in rows.columns:
            continue
        if name == "broker":
            ip = f.col("broker_ip")
            host = f.when(ip.contains(":"), f.concat(f.lit("["), ip, f.lit("]"))).otherwise(ip)
            rows = rows.withColumn("broker", f.concat(host, f.lit(":"), "broker_port"))
        elif name == "client":
            rows = rows.withColumn("client", f.col("client_ip"))
        elif name == "topic":
            rows = rows.withColumn("topic", f.explode_outer("topics"))
        elif name == "software":
            software = f.concat_ws(" ", "software_name", "software_version")
            known = tables["connections"].filter("software_name is not null")
            known = known.select("connection_id", software.alias("software"))
            rows = rows.join(known, "connection_id", "left")
    return rows


# Buckets


def _in_buckets(
    tables: Tables, keys: Mapping[str, Column], function: Bucketed, columns: Sequence[TableColumn]
) -> DataFrame:
    """Apply a function of pandas tables to each bucket. Rows with equal `keys` stay together."""
    schema = _spark_schema(columns)
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    names = tuple(keys)

    def answer(
        key: tuple[pa.Scalar, ...], parts: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        result = function(_unpacked(names, parts))
        rows = pa.Table.from_pandas(result, preserve_index=False)
        arrays = [rows[c.name].combine_chunks().cast(c.type, safe=False) for c in arrow_schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)

    packed = [
        tables[name]
        .withColumn("bucket", f.pmod(f.hash(key), f.lit(_buckets(tables[name]))))
        .mapInArrow(partial(_packed, name), _PACKED)
        for name, key in keys.items()
    ]
    return reduce(DataFrame.unionAll, packed).groupBy("bucket").applyInArrow(answer, schema)


def _buckets(rows: DataFrame) -> int:
    return int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions"))


def _packed(name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a table, one value per bucket."""
    for batch in batches:
        bucket = batch.column("bucket").to_numpy()
        kept = batch.select([n for n in TABLES[name].schema.names if n in batch.schema.names])
        times = [n for n in batch.schema.names if n.endswith("_ns")]
        for number in np.unique(bucket).tolist():
            is_in_bucket = pa.array(bucket == number)
            rows = pa.Table.from_batches([kept.filter(is_in_bucket)])
            for time in times:
                place = rows.schema.get_field_index(time.removesuffix("_ns"))
                exact = batch.column(time).filter(is_in_bucket).cast(pa.timestamp("ns", "UTC"))
                rows = rows.set_column(place, rows.schema.names[place], exact)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            content = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int32()), pa.array([name]), content],
                names=["bucket", "kind", "content"],
            )


def _unpacked(names: Sequence[str], parts: Iterator[pa.RecordBatch]) -> dict[str, pd.DataFrame]:
    """The tables of a bucket, in order of time, as `analysis.load` returns them."""
    tables: dict[str, list[pa.Table]] = {name: [] for name in names}
    for part in parts:
        for kind, content in zip(
            part["kind"].to_pylist(), part["content"].to_pylist(), strict=True
        ):
            tables[kind].append(pa.ipc.open_stream(content).read_all())
    return {name: _in_order(name, parts) for name, parts in tables.items()}


def _in_order(name: str, tables: Sequence[pa.Table]) -> pd.DataFrame:
    schema = TABLES[name].schema
    rows = pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])
    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    return frame(rows.sort_by([(times[0], "ascending")]))


def _spark_schema(columns: Sequence[TableColumn]) -> StructType:
    micro = pa.timestamp("us", "UTC")
    return from_arrow_schema(
        pa.schema([(c.name, micro if pa.types.is_timestamp(c.type) else c.type) for c in columns])
    )

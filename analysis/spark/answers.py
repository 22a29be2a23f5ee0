"""Answers over Spark DataFrames: the SQL of `analysis.answers`, run by DuckDB in a task.

The tables that an answer needs are sent to one task, which writes them to files and runs the same
query as on one machine. So results are equal, and the memory of the task does not grow with the
rows. `docs/decisions/answers-on-spark.md` has the reasons and figures.

The rows come from any number of files and machines, in any order: answers order them by themselves
(`analysis.sql.row_order`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from analysis.answers import ANSWERS, Answer
from analysis.input.exported import in_schema
from analysis.spark.schemas import to_arrow, with_nanoseconds
from analysis.sql.query import missing_table, no_tables
from dissector import arguments
from dissector.tables import TABLES
from dissector.tables.finalizer import NamedBatch

if TYPE_CHECKING:
    from dissector.capture import Names, Paths

_PACKED: Final = "name string, rows binary"
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def load(spark: SparkSession, paths: Paths, tables: Names) -> Mapping[str, DataFrame]:
    """Tables of captures, from the registered data source.

    They share one plan, which reads the captures once, when a table is first used.
    """
    given = [os.fspath(path) for path in arguments.paths("paths", paths)]
    names = arguments.texts("tables", tables)
    shared = {"tables": ",".join(names), "plan_id": uuid4().hex}
    source = spark.read.format("kafka_capture").options(**shared)
    return {name: source.option("table", name).load(given) for name in names}


def answer(declared: Answer, tables: Mapping[str, DataFrame], **options: Any) -> DataFrame:
    """The rows of an answer, in its order, as a DataFrame that a task computes when it is used.

    A time has two columns, as in the tables. Raises DissectorError for wrong options, and if a
    table is missing.
    """
    names = declared.tables_for(options)
    for name in names:
        if name not in tables:
            raise missing_table(name, names, "load it: analysis.spark.load(spark, paths, ")
    schema = columns(declared, options)
    packed = [tables[name].mapInArrow(partial(pack, name), _PACKED) for name in names]
    work = partial(answered, declared.name, options, to_arrow(schema))
    return reduce(DataFrame.unionAll, packed).repartition(1).mapInArrow(work, schema)


def columns(declared: Answer, options: Mapping[str, Any]) -> StructType:
    """The columns of an answer, which depend on the options alone. Raises DissectorError."""
    empty = declared.arrow(no_tables(declared.tables_for(options)), **options)
    return from_arrow_schema(pa.table(with_nanoseconds(empty)).schema)


def pack(name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of a table as values of bytes, so that all tables have the same columns."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as writer:
            writer.write_batch(batch)
        content = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([pa.array([name]), content], names=["name", "rows"])


def _unpacked(parts: Iterable[pa.RecordBatch]) -> Iterator[NamedBatch]:
    """The rows of `pack`, in the schema of their tables."""
    for part in parts:
        names, contents = (part[column].to_pylist() for column in ("name", "rows"))
        for name, content in zip(names, contents, strict=True):
            for batch in pa.ipc.open_stream(content):
                yield name, in_schema(batch, TABLES[name].schema)


def answered(
    name: str, options: Mapping[str, Any], schema: pa.Schema, parts: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of an answer."""
    from analysis.sql.stored import stored

    declared = ANSWERS[name]
    with stored(_unpacked(parts), declared.tables_for(options)) as connection:
        rows = pa.table(with_nanoseconds(declared.arrow(connection, **options)))
    yield from rows.cast(schema).to_batches()

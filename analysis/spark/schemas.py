"""The tables as Spark schemas, derived from `dissector.tables`.

Spark's timestamps have microseconds. So each time has two columns: a truncated timestamp, and
`NAME_ns`, a long of nanoseconds since 1970. All other columns are as in Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from inspect import signature

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from dissector.errors import DissectorError, did_you_mean
from dissector.exchanges.columns import Rows
from dissector.tables import TABLES

_MICROSECONDS = pa.timestamp("us", "UTC")
_NS_PER_US = 1000


@cache
def spark_schema(table: str) -> StructType:
    """The schema of a table."""
    fields: list[pa.Field] = []
    for column in TABLES[table].schema:
        if pa.types.is_timestamp(column.type):
            fields.append(pa.field(column.name, _MICROSECONDS))
            fields.append(pa.field(f"{column.name}_ns", pa.int64()))
        elif pa.types.is_large_binary(column.type):
            fields.append(pa.field(column.name, pa.binary()))
        else:
            fields.append(column)
    return from_arrow_schema(pa.schema(fields))


def selected(table: str, columns: Sequence[str]) -> StructType:
    """The schema of these columns of a table; empty: of all. Raises DissectorError."""
    schema = spark_schema(table)
    if unknown := [name for name in columns if name not in schema.names]:
        raise DissectorError(
            f"unknown column {unknown[0]}; the columns of {table} are {', '.join(schema.names)}"
            f"{did_you_mean(unknown[0], schema.names)}"
        )
    if repeated := [name for name in columns if columns.count(name) > 1]:
        raise DissectorError(f"column {repeated[0]} is repeated; name each column once")
    return StructType([schema[name] for name in columns or schema.names])


def check_schema(table: str, given: StructType) -> None:
    """Raises DissectorError if a schema of a user has a column that is not one of the table."""
    for own, field in zip(selected(table, given.names), given, strict=False):
        # A type as text does not depend on whether values may be null.
        types = [each.dataType.simpleString() for each in (own, field)]
        if types[0] != types[1]:
            raise DissectorError(f"column {field.name} has the type {types[0]}, not {types[1]}")


@cache
def arrow_schema(table: str) -> pa.Schema:
    """The exact Arrow schema that Spark expects for the rows of a table."""
    return to_arrow(spark_schema(table))


def to_arrow(schema: StructType) -> pa.Schema:
    """The exact Arrow schema that Spark expects. Times are in UTC."""
    # PySpark 4.0 and 4.1 have no such parameter, and always use UTC.
    zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def to_spark(table: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Convert rows of `dissector` to the schema of Spark."""
    columns, schema = with_nanoseconds(rows), arrow_schema(table)
    arrays = [columns[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def with_nanoseconds(rows: Rows) -> dict[str, pa.Array | pa.ChunkedArray]:
    """The columns by name; two for each time."""
    columns = {}
    for column, values in zip(rows.schema, rows.columns, strict=True):
        columns[column.name] = values
        if pa.types.is_timestamp(column.type):
            ns = values.cast(pa.int64())
            columns[column.name] = _microseconds(ns)
            columns[f"{column.name}_ns"] = ns
    return columns


def _microseconds(ns: pa.Array) -> pa.Array:
    """Truncate towards the past, even before 1970."""
    down = pc.if_else(pc.less(ns, 0), pc.subtract(ns, _NS_PER_US - 1), ns)
    return pc.divide(down, _NS_PER_US).cast(_MICROSECONDS)

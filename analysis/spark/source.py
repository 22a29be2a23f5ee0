"""The data source `kafka_capture`, for `spark.read` and SQL.

Spark asks a Python data source for its partitions, and then for the rows of each, in processes
without a session, so a data source cannot shuffle. The driver therefore runs a small local server.
When Spark asks for partitions, the source sends the server a request. The server runs the plan,
writes the table to `result_dir`, a folder that all machines share, and returns its path. A
partition is one file of this folder. The plan runs once per DataFrame, at its first action; further
actions read the same files. DataFrames with the same option `plan_id` share one plan: the first
action of any of them writes all tables. `result_dirs` removes the folder when the driver ends.

PySpark 4.3 gives a Python data source no columns of the query. The option `columns`, or
`.schema(...)`, limits what a partition reads. Filters are never pushed down, because Spark would
reuse filtered rows for a query without the filter.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from analysis.spark import job, result_dirs
from analysis.spark.causes import reason
from analysis.spark.options import Request, parse
from analysis.spark.output import Output
from analysis.spark.plan_server import PlanClient, PlanServer, rows_of
from analysis.spark.schemas import check_schema, selected
from analysis.spark.session import SMALL_BATCHES
from analysis.spark.tasks import is_connect
from dissector.errors import DissectorError

FORMAT: Final = "kafka_capture"

_result_dirs: Final[dict[str, Path]] = {}
"""Result folders by `plan_id`; only the server uses them."""


def register(spark: SparkSession) -> None:
    """Register ``spark.read.format("kafka_capture")`` in a session.

    `analysis.spark.options` lists the options. Raises DissectorError if Spark runs a Python that
    lacks this package.
    """
    for name, value in SMALL_BATCHES.items():
        spark.conf.set(name, value)
    server = PlanServer(spark)

    class KafkaCapture(_Source):
        plan_client = server.plan_client

    spark.dataSource.register(KafkaCapture)
    _check_python(spark)


def _check_python(spark: SparkSession) -> None:
    """Raises DissectorError if Spark's Python cannot make a data source.

    Without PYSPARK_PYTHON, Spark runs the `python3` of PATH, which is that of the driver's virtual
    environment only if this is activated.
    """
    python = "of the server" if is_connect(spark) else spark.sparkContext.pythonExec
    if Path(shutil.which(python) or python).parent == Path(sys.executable).parent:
        return
    try:
        spark.read.format(FORMAT).load(".")
    except (PySparkException, Py4JError) as error:
        raise DissectorError(
            f"Spark runs the Python {python}, which cannot be used: {reason(error)}. Before you "
            f"create the session, set PYSPARK_PYTHON={sys.executable}"
        ) from error


def write_result(spark: SparkSession, request: Request, arguments: tuple[Any, ...]) -> str:
    """Write the tables of a request; returns the folder of the first one."""
    result_dir = _result_dirs.get(request.plan_id or "")
    if result_dir is None:
        result_dir = result_dirs.create(spark, request.result_dir)
        _write(spark, request, result_dir)
        if request.plan_id:
            _result_dirs[request.plan_id] = result_dir
    return str(result_dir / request.tables[0])


def _write(spark: SparkSession, request: Request, result_dir: Path) -> None:
    """Write all tables of a request to a folder. Raises DissectorError and Spark errors."""
    try:
        with Output(str(result_dir), request).opened() as output:
            for _ in job.run(spark, request, output):
                pass
    except BaseException:
        shutil.rmtree(result_dir, ignore_errors=True)
        raise


class _Source(DataSource):
    """The data source. Invalid options raise when the DataFrame is created."""

    plan_client: PlanClient

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        request = parse(options)
        self._table = request.tables[0]
        self._schema = selected(self._table, request.columns)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return self._schema

    def reader(self, schema: StructType) -> DataSourceReader:
        check_schema(self._table, schema)
        return _Reader(dict(self.options), schema, self.plan_client)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            check_schema(self._table, schema)
            from analysis.spark.stream import StreamReader

            return StreamReader(dict(self.options), schema, self.plan_client)
        except ModuleNotFoundError:  # pyspark.sql.streaming.datasource
            return _InvalidStream(DissectorError("streams need PySpark 4.2 or newer"))
        except DissectorError as error:
            return _InvalidStream(error)


class _InvalidStream(DataSourceStreamReader):
    """Raises an error when the stream starts. If `streamReader` raises, PySpark 4.0 to 4.3 reports
    an UnboundLocalError of its own instead."""

    def __init__(self, error: DissectorError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._error

    def latestOffset(self, *_: object) -> dict[str, Any]:  # noqa: N802
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


class _Reader(DataSourceReader):
    def __init__(
        self, options: dict[str, str], schema: StructType, plan_client: PlanClient
    ) -> None:
        self._options = options
        self._schema = schema
        self._plan_client = plan_client

    def partitions(self) -> list[InputPartition]:
        return self._plan_client.request(write_result, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # None means that there is no partition
            yield from rows_of(partition.value, self._schema)

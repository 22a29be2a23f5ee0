"""The data source `kafka_capture`, for `spark.read` and for SQL.

A data source in Python is asked for its partitions, and then for the rows of each, in processes
that know no session: it cannot shuffle. So the driver keeps an office. Asked for partitions, the
source tells the office what is wanted; the office runs the plan, writes the table into the spool, a
folder that all can read, and answers where it is. Reading a partition is reading a file of the
spool. That happens once for a DataFrame, at its first action; further actions read the spool again.
DataFrames with the same option `reading` share one plan: the first action of any of them writes all
of their tables. The spool is emptied when the driver ends.

Filters are never pushed down: Spark would keep what was read with one for a query without it.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final, TypeAlias
from uuid import uuid4

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
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from analysis.spark import plan, requirements
from analysis.spark.causes import cause
from analysis.spark.options import Request, parse
from analysis.spark.schemas import spark_schema
from analysis.spark.session import LOOPBACK, SMALL_BATCHES
from analysis.spark.writing import Folder
from dissector.errors import DissectorError

FORMAT: Final = "kafka_capture"

Task: TypeAlias = Callable[[SparkSession, Request, tuple[Any, ...]], str]
"""What the office does: gives a folder of Parquet files."""
_readings: Final[dict[str, Path]] = {}
"""The spool of each reading that several DataFrames share; the office alone uses it."""


def register(spark: SparkSession) -> None:
    """Make the format known to a session: ``spark.read.format("kafka_capture")``.

    `analysis.spark.options` has its options. Raises DissectorError for a session of Spark Connect.
    """
    requirements.refuse_connect(spark)
    for name, value in SMALL_BATCHES.items():
        spark.conf.set(name, value)
    office = Office(spark)

    class KafkaCapture(_Source):
        desk = office.desk

    spark.dataSource.register(KafkaCapture)


class Desk:
    """Where to ask the office, from any process of the driver's machine."""

    def __init__(self, address: Any, key: bytes) -> None:
        self._address = address
        self._key = key

    def ask(self, task: Task, options: Mapping[str, str], *more: Any) -> list[InputPartition]:
        """The files of what a task gives, as partitions. Raises DissectorError."""
        with Client(self._address, authkey=self._key) as office:
            office.send((task, dict(options), more))
            folder, wrong = office.recv()
        if wrong:
            raise DissectorError(wrong)
        return [InputPartition(str(path)) for path in sorted(Path(folder).glob("*.parquet"))]


class Office:
    """Runs tasks for whoever knows its address and key, one at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        key = token_bytes(32)
        self._listener = Listener((LOOPBACK, 0), authkey=key)
        self.desk = Desk(self._listener.address, key)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                with self._listener.accept() as line:
                    line.send(self._answer(*line.recv()))
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # a stranger, or a query that was given up; the next one is served

    def _answer(
        self, task: Task, options: Mapping[str, str], more: tuple[Any, ...]
    ) -> tuple[str, str]:
        """A folder, and what went wrong; one of them is empty."""
        try:
            return task(self._spark, parse(options), more), ""
        except (DissectorError, PySparkException, Py4JError, OSError) as error:
            return "", cause(error)


def spooled(spark: SparkSession, request: Request, more: tuple[Any, ...]) -> str:
    """The first table of a request as files in the spool."""
    spool = _readings.get(request.reading or "")
    if spool is None:
        spool = Path(request.spool or tempfile.gettempdir(), f"kafka-dissector-{uuid4().hex}")
        atexit.register(shutil.rmtree, spool, ignore_errors=True)
        _write(spark, request, spool)
        if request.reading:
            _readings[request.reading] = spool
    return str(spool / request.tables[0])


def _write(spark: SparkSession, request: Request, spool: Path) -> None:
    """Write all tables of a request into a spool. Raises DissectorError, and errors of Spark."""
    folders = {name: Folder(str(spool / name)) for name in request.tables}
    try:
        for folder in folders.values():
            folder.begin()
        requirements.check(spark, folders[request.tables[0]])
        with plan.whole(spark, request) as found:
            for name, folder in folders.items():
                found.write(name, folder)
    except BaseException:
        shutil.rmtree(spool, ignore_errors=True)
        raise


class _Source(DataSource):
    """What Spark sees. Bad options raise when the DataFrame is made."""

    desk: Desk

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._request = parse(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_schema(self._request.tables[0])

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(dict(self.options), schema, self.desk)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from analysis.spark.stream import StreamReader

        return StreamReader(dict(self.options), schema, self.desk)


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str], schema: StructType, desk: Desk) -> None:
        self._options = options
        self._schema = schema
        self._desk = desk

    def partitions(self) -> list[InputPartition]:
        return self._desk.ask(spooled, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # None is how Spark says that there is no partition
            yield from rows_of(partition.value, self._schema)


def rows_of(path: str, wanted: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a file of the spool, with these columns."""
    schema = to_arrow_schema(wanted, timezone="UTC")
    with pa.parquet.ParquetFile(path) as file:
        for rows in file.iter_batches(columns=schema.names):
            arrays = [rows.column(each.name).cast(each.type) for each in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

"""The data source `kafka_capture`, for `spark.read` and SQL.

Spark asks a Python data source for its partitions, and then for the rows of each, in processes
without a session, so a data source cannot shuffle. The driver therefore runs a small local server.
When Spark asks for partitions, the source sends the server a request. The server runs the plan,
writes the table to `result_dir`, a folder that all machines share, and returns its path. A
partition is one file of this folder. The plan runs once per DataFrame, at its first action; further
actions read the same files. DataFrames with the same option `plan_id` share one plan: the first
action of any of them writes all tables. The folder is removed when the driver ends.

Filters are never pushed down, because Spark would reuse filtered rows for a query without the
filter.
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
"""A function that the server runs. It returns a folder of Parquet files."""
_result_dirs: Final[dict[str, Path]] = {}
"""Result folders by `plan_id`; only the server uses them."""


def register(spark: SparkSession) -> None:
    """Register ``spark.read.format("kafka_capture")`` in a session.

    `analysis.spark.options` lists the options. Raises DissectorError for Spark Connect.
    """
    requirements.refuse_connect(spark)
    for name, value in SMALL_BATCHES.items():
        spark.conf.set(name, value)
    server = PlanServer(spark)

    class KafkaCapture(_Source):
        plan_client = server.plan_client

    spark.dataSource.register(KafkaCapture)


class PlanClient:
    """Sends requests to the server, from any process on the driver's machine."""

    def __init__(self, address: Any, key: bytes) -> None:
        self._address = address
        self._key = key

    def request(
        self, task: Task, options: Mapping[str, str], *arguments: Any
    ) -> list[InputPartition]:
        """Run a task on the server; returns its files as partitions. Raises DissectorError."""
        with Client(self._address, authkey=self._key) as server:
            server.send((task, dict(options), arguments))
            folder, error = server.recv()
        if error:
            raise DissectorError(error)
        return [InputPartition(str(path)) for path in sorted(Path(folder).glob("*.parquet"))]


class PlanServer:
    """Runs tasks for clients that know its address and key, one at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        key = token_bytes(32)
        self._listener = Listener((LOOPBACK, 0), authkey=key)
        self.plan_client = PlanClient(self._listener.address, key)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                with self._listener.accept() as connection:
                    connection.send(self._run(*connection.recv()))
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # a foreign client, or a cancelled query

    def _run(
        self, task: Task, options: Mapping[str, str], arguments: tuple[Any, ...]
    ) -> tuple[str, str]:
        """A folder and an error message; one of them is empty."""
        try:
            return task(self._spark, parse(options), arguments), ""
        except (DissectorError, PySparkException, Py4JError, OSError) as error:
            return "", cause(error)


def write_result(spark: SparkSession, request: Request, arguments: tuple[Any, ...]) -> str:
    """Write the tables of a request; returns the folder of the first one."""
    result_dir = _result_dirs.get(request.plan_id or "")
    if result_dir is None:
        parent = request.result_dir or tempfile.gettempdir()
        result_dir = Path(parent, f"kafka-dissector-{uuid4().hex}")
        atexit.register(shutil.rmtree, result_dir, ignore_errors=True)
        _write(spark, request, result_dir)
        if request.plan_id:
            _result_dirs[request.plan_id] = result_dir
    return str(result_dir / request.tables[0])


def _write(spark: SparkSession, request: Request, result_dir: Path) -> None:
    """Write all tables of a request to a folder. Raises DissectorError and Spark errors."""
    folders = {name: Folder(str(result_dir / name)) for name in request.tables}
    try:
        for folder in folders.values():
            folder.begin()
        requirements.check(spark, folders[request.tables[0]])
        with plan.dissect_captures(spark, request) as dissection:
            for name, folder in folders.items():
                dissection.write(name, folder)
    except BaseException:
        shutil.rmtree(result_dir, ignore_errors=True)
        raise


class _Source(DataSource):
    """The data source. Invalid options raise when the DataFrame is created."""

    plan_client: PlanClient

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._request = parse(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_schema(self._request.tables[0])

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(dict(self.options), schema, self.plan_client)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from analysis.spark.stream import StreamReader

        return StreamReader(dict(self.options), schema, self.plan_client)


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


def rows_of(path: str, columns: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a result file, with these columns."""
    schema = to_arrow_schema(columns, timezone="UTC")
    with pa.parquet.ParquetFile(path) as file:
        for rows in file.iter_batches(columns=schema.names):
            arrays = [rows.column(field.name).cast(field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

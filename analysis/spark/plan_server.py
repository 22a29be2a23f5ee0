"""The server that runs plans for data sources, and its clients.

A data source has no session. So the driver runs a local server: a client sends it a task, the
server runs the task in its session, and returns a folder of Parquet files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from secrets import token_bytes
from socket import gethostname
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from analysis.spark.causes import cause
from analysis.spark.options import Request, parse
from analysis.spark.schemas import to_arrow
from analysis.spark.session import LOOPBACK
from dissector.errors import DissectorError

Task: TypeAlias = Callable[[SparkSession, Request, tuple[Any, ...]], str]
"""A function that the server runs. It returns a folder of Parquet files."""


class PlanClient:
    """Sends requests to the server, from any process on the driver's machine."""

    def __init__(self, address: Any, key: bytes) -> None:
        self._address = address
        self._key = key

    def request(
        self, task: Task, options: Mapping[str, str], *arguments: Any
    ) -> list[InputPartition]:
        """Run a task on the server; returns its files as partitions. Raises DissectorError."""
        try:
            with Client(self._address, authkey=self._key) as server:
                server.send((task, dict(options), arguments))
                folder, error = server.recv()
        except EOFError:
            folder, error = "", "the plan failed; the reason is on the driver's standard error"
        except ConnectionError as refused:
            raise DissectorError(
                f"the process that registered the format has ended, or runs on another machine "
                f"than {gethostname()}, where Spark plans its queries"
            ) from refused
        if error:
            raise DissectorError(error)
        return [InputPartition(str(path)) for path in sorted(Path(folder).rglob("*.parquet"))]


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
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # a foreign client
            # An error that no one expects ends the thread of this client, and not the server.
            thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
            thread.start()
            thread.join()

    def _answer(self, connection: Connection) -> None:
        with connection, suppress(EOFError, ConnectionError):  # a cancelled query
            connection.send(self._run(*connection.recv()))

    def _run(
        self, task: Task, options: Mapping[str, str], arguments: tuple[Any, ...]
    ) -> tuple[str, str]:
        """A folder and an error message; one of them is empty."""
        try:
            return task(self._spark, parse(options), arguments), ""
        except (DissectorError, PySparkException, Py4JError, OSError) as error:
            return "", cause(error)


def rows_of(path: str, columns: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a result file, with these columns."""
    schema = to_arrow(columns)
    with pa.parquet.ParquetFile(path) as file:
        for rows in file.iter_batches(columns=schema.names):
            arrays = [rows.column(field.name).cast(field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

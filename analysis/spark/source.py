"""The data source `kafka_capture`, for `spark.read` and for SQL.

A data source in Python is asked for its partitions, and then for the rows of each, in processes
that know no session: it cannot shuffle. So the driver keeps an office. Asked for partitions, the
source tells the office what is wanted; the office runs the plan, writes the table into the spool, a
folder that all can read, and answers where it is. Reading a partition is reading a file of the
spool. That happens once for a DataFrame, at its first action; further actions read the spool again.
The spool is emptied when the driver ends.

Filters are never pushed down: Spark would keep what was read with one for a query without it.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from analysis.spark import plan
from analysis.spark.plan import Request
from analysis.spark.schemas import spark_schema
from analysis.spark.session import LOOPBACK
from dissector.errors import DissectorError
from dissector.protocol import catalog
from dissector.tables import TABLES

FORMAT: Final = "kafka_capture"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DEFAULT: Final = Request(())


def register(spark: SparkSession) -> None:
    """Make the format known to a session: ``spark.read.format("kafka_capture")``.

    Options, all of them text:

        table         exchanges, errors, batches, records, connections, topics or problems
        ports         where brokers listen, for connections that began before: ``9092,9093``
        since, until  ISO 8601, UTC where it says no zone: packets of that time only
        api_keys      rows of these APIs only: ``0,1``
        show_secrets  true: leave secrets in `records`
        shares        into how many tasks connections are dealt
        spool         folder that driver and executors can read and write; a temporary one
    """
    office = _Office(spark)

    class KafkaCapture(_Source):
        address = office.address
        key = office.key

    spark.dataSource.register(KafkaCapture)


def parse(options: Mapping[str, str]) -> tuple[Request, str | None]:
    """What options ask for, and the spool. Raises DissectorError."""
    rest = {name.lower(): value for name, value in options.items()}
    paths = json.loads(rest.pop("paths", "[]")) or [rest.pop("path", "")]
    if paths == [""]:
        raise DissectorError("which captures? load(PATH), or the option `path`")
    name = rest.pop("table", "exchanges")
    if name not in TABLES:
        raise DissectorError(f"no table is called {name}: there are {', '.join(TABLES)}")
    spool = rest.pop("spool", None)
    try:
        request = Request(
            paths,
            (name,),
            ports=_numbers(rest.pop("ports", "")) or _DEFAULT.ports,
            apis=[_api(key) for key in _numbers(rest.pop("api_keys", ""))],
            show_secrets=rest.pop("show_secrets", "").lower() == "true",
            since=_time(rest.pop("since", ""), _DEFAULT.since),
            until=_time(rest.pop("until", ""), _DEFAULT.until),
            shares=int(rest.pop("shares", "0")),
        )
    except ValueError as error:
        raise DissectorError(f"an option cannot be understood: {error}") from error
    if rest:
        raise DissectorError(f"no option is called {next(iter(rest))}")
    return request, spool


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.replace(",", " ").split()]


def _api(key: int) -> str:
    name = catalog.api_name(key)
    if name is None:
        raise DissectorError(f"no API has the key {key}")
    return name


def _time(text: str, default: int) -> int:
    """ISO 8601 as ns since 1970."""
    if not text:
        return default
    moment = datetime.fromisoformat(text)
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
    return ((since.days * 86400 + since.seconds) * 10**6 + since.microseconds) * 1000


class _Office:
    """Runs plans for whoever knows its address and key, one at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.key = token_bytes(32)
        self._listener = Listener((LOOPBACK, 0), authkey=self.key)
        self.address = self._listener.address
        self._spools: list[Path] = []
        atexit.register(self._empty)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                with self._listener.accept() as line:
                    line.send(self._answer(line.recv()))
            except (AuthenticationError, EOFError, ConnectionError):
                continue  # a stranger, or a query that was given up; the next one is served

    def _answer(self, options: Mapping[str, str]) -> tuple[str, str]:
        """Where the spool is, and what went wrong; one of them is empty."""
        try:
            return self._spooled(*parse(options)), ""
        except (DissectorError, PySparkException, Py4JError, OSError) as error:
            return "", str(error)

    def _spooled(self, request: Request, spool: str | None) -> str:
        folder = Path(spool or tempfile.gettempdir(), f"kafka-dissector-{uuid4().hex}")
        self._spools.append(folder)
        with plan.tables(self._spark, request) as tables:
            for rows in tables.values():
                rows.write.parquet(folder.absolute().as_uri())
        return str(folder)

    def _empty(self) -> None:
        for folder in self._spools:
            shutil.rmtree(folder, ignore_errors=True)


class _Source(DataSource):
    """What Spark sees. Bad options raise when the DataFrame is made."""

    address: Any
    key: bytes

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._request, _ = parse(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_schema(self._request.tables[0])

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(dict(self.options), schema, self.address, self.key)


class _Reader(DataSourceReader):
    def __init__(
        self, options: dict[str, str], schema: StructType, address: Any, key: bytes
    ) -> None:
        self._options = options
        self._schema = schema
        self._address = address
        self._key = key

    def partitions(self) -> list[InputPartition]:
        with Client(self._address, authkey=self._key) as office:
            office.send(self._options)
            folder, wrong = office.recv()
        if wrong:
            raise DissectorError(wrong)
        return [InputPartition(str(path)) for path in sorted(Path(folder).glob("*.parquet"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # how Spark says that there is no partition
            return
        schema = to_arrow_schema(self._schema, timezone="UTC")
        with pa.parquet.ParquetFile(partition.value) as file:
            for rows in file.iter_batches(columns=schema.names):
                arrays = [rows.column(each.name).cast(each.type) for each in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

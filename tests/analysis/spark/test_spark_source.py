"""The data source: options, SQL, and what is wrong with captures and options."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import analysis.spark
from analysis.spark import options
from analysis.spark.schemas import to_spark
from dissector.capture import open_capture
from dissector.errors import DissectorError
from tests.analysis.spark.dealing import CAPTURES, deal, packets, plain, texts

QUOTAS = CAPTURES / "kafka-4-quotas.pcap.zst"
SECOND = 10**9
_PROBLEM = {"capture", "packet", "connection_id", "stage", "kind", "offset", "bytes"}


@pytest.fixture(scope="module")
def read(spark: SparkSession) -> SparkSession:
    analysis.spark.register(spark)
    return spark


def test_a_damaged_file_among_good_ones_gives_problems(read: SparkSession, tmp_path: Path) -> None:
    paths = deal(QUOTAS, tmp_path, 4)
    head, records = packets(plain(Path(paths[1])))
    records[40] = bytes(100)
    Path(paths[1]).write_bytes(head + b"".join(records))
    Path(paths[2]).write_bytes(b"")
    Path(paths[3]).write_bytes(b"no capture at all")
    source = read.read.format("kafka_capture").option("shares", 2)
    expected = open_capture(paths).tables(["exchanges", "problems"])
    for name, table in expected.items():
        found = source.option("table", name).load(paths).toArrow()
        same = [to_spark(name, batch) for batch in table.to_batches()]
        # When a stream was given up, and in which words, depends on what is read at once.
        columns = [each for each in found.schema.names if name == "exchanges" or each in _PROBLEM]
        assert texts(found.select(columns).to_batches()) == texts(
            [batch.select(columns) for batch in same]
        )
        assert len(found) >= 3
    assert {"unreadable_file"} < {*expected["problems"]["kind"].to_pylist()}


def test_sql_with_options(read: SparkSession) -> None:
    one = open_capture(QUOTAS).tables(["exchanges"])["exchanges"]
    until = one["request_time"].cast("int64")[0].as_py() // SECOND * SECOND + 10 * SECOND
    moment = datetime.fromtimestamp(until // SECOND, UTC).isoformat()
    read.sql(
        f"""create or replace temporary view asked using kafka_capture options (
            path '{QUOTAS}', apis 'Metadata, 0', until '{moment}')"""
    )
    found = read.sql("select api, request_time_ns, client_id from asked").toArrow()
    time = one["request_time"].cast("int64")
    chosen = pc.is_in(one["api"], pa.array(["Metadata", "Produce"]))
    expected = one.filter(pc.and_(chosen, pc.less(time, until)))
    assert 3 < len(expected) < len(one)
    assert sorted(found["request_time_ns"].to_pylist()) == sorted(
        expected["request_time"].cast("int64").to_pylist()
    )
    assert {*found["api"].to_pylist()} <= {"Metadata", "Produce"}
    # The same view again: nothing of one query stays for the next.
    assert read.sql("select count(*) from asked where api = 'Metadata'").first()[0] == sum(
        api == "Metadata" for api in found["api"].to_pylist()
    )
    assert read.sql("select count(*) from asked").first()[0] == len(found)


def test_records_without_values(read: SparkSession) -> None:
    found = (
        read.read.format("kafka_capture")
        .options(table="records", values="false")
        .load([str(QUOTAS)])
        .toArrow()
    )
    one = open_capture(QUOTAS).tables(["records"])["records"]
    assert len(found) == len(one) > 0
    assert sorted(found["offset"].to_pylist()) == sorted(one["offset"].to_pylist())
    assert found["value"].null_count == len(found)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"path": "x", "table": "rows"}, "no table is called rows"),
        ({"path": "x", "apis": "Frobnicate"}, "no API is called Frobnicate"),
        ({"path": "x", "apis": "9999"}, "no API is called 9999"),
        ({"path": "x", "since": "yesterday"}, "yesterday is no time"),
        ({"path": "x", "shares": "-1"}, "shares is a number, not -1"),
        ({"path": "x", "values": "maybe"}, "values is true or false, not maybe"),
        ({"path": "x", "tabel": "errors"}, "no option is called tabel"),
        ({}, "which captures"),
    ],
)
def test_options_that_mean_nothing(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(DissectorError, match=complaint):
        options.parse(given)


def test_bad_options_and_captures_are_told_to_spark(read: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="no table is called rows"):
        read.read.format("kafka_capture").option("table", "rows").load(str(QUOTAS))
    with pytest.raises(AnalysisException, match=r"nothing\.pcap"):
        read.read.format("kafka_capture").load(str(tmp_path / "nothing.pcap")).count()

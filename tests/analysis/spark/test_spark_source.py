"""The data source: options, SQL, invalid captures and options."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

import analysis.spark
from analysis.spark import options, plan
from analysis.spark.causes import reason
from analysis.spark.plan_server import PlanServer
from analysis.spark.schemas import check_schema, to_spark
from bench.cluster import ENVIRONMENT
from dissector.capture import open_capture
from dissector.errors import DissectorError
from tests.analysis.spark.sharding import CAPTURES, QUOTAS, split_capture, texts
from tests.robustness.robustness_damage import recording

SECOND = 10**9
SOON = 180
"""Seconds that Java may take to end on a busy machine."""
_PROBLEM = {"capture", "packet", "connection_id", "stage", "kind", "offset", "bytes"}


def test_a_damaged_file_among_good_ones_has_problems(
    registered: SparkSession, tmp_path: Path
) -> None:
    paths = split_capture(QUOTAS, tmp_path, 4)
    whole = recording(Path(paths[1]))
    Path(paths[1]).write_bytes(whole.data.replace(whole.packets[40], bytes(100)))
    Path(paths[2]).write_bytes(b"")
    Path(paths[3]).write_bytes(b"no capture at all")
    expected = open_capture(paths).tables(["exchanges", "problems"])
    tables = analysis.spark.load(registered, paths, [*expected])
    for name, table in expected.items():
        actual = tables[name].toArrow()
        same = [to_spark(name, batch) for batch in table.to_batches()]
        # The time and detail of a problem of a stream depend on the blocks.
        columns = [c for c in actual.schema.names if name == "exchanges" or c in _PROBLEM]
        assert texts(actual.select(columns).to_batches()) == texts(
            [batch.select(columns) for batch in same]
        )
        assert len(actual) >= 3
    assert {"unreadable_file"} < {*expected["problems"]["kind"].to_pylist()}


def test_a_folder_without_captures_is_an_input_as_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    paths = [str(QUOTAS), str(tmp_path / "empty")]
    assert plan.inputs(paths)[0] == [*open_capture(paths).paths] == paths


def test_sql_with_options(registered: SparkSession) -> None:
    exchanges = open_capture(QUOTAS).tables(["exchanges"])["exchanges"]
    until = exchanges["request_time"].cast("int64")[0].as_py() // SECOND * SECOND + 10 * SECOND
    moment = datetime.fromtimestamp(until // SECOND, UTC).isoformat()
    registered.sql(
        f"""create or replace temporary view asked using kafka_capture options (
            path '{QUOTAS}', apis 'Metadata, 0', until '{moment}',
            columns 'api, request_time_ns, client_id')"""
    )
    assert registered.table("asked").columns == ["api", "request_time_ns", "client_id"]
    actual = registered.sql("select api, request_time_ns, client_id from asked").toArrow()
    time = exchanges["request_time"].cast("int64")
    has_api = pc.is_in(exchanges["api"], pa.array(["Metadata", "Produce"]))
    expected = exchanges.filter(pc.and_(has_api, pc.less(time, until)))
    assert 3 < len(expected) < len(exchanges)
    assert sorted(actual["request_time_ns"].to_pylist()) == sorted(
        expected["request_time"].cast("int64").to_pylist()
    )
    assert {*actual["api"].to_pylist()} <= {"Metadata", "Produce"}
    # Another query of the view does not reuse the filter of the first one.
    assert registered.sql("select count(*) from asked where api = 'Metadata'").first()[0] == sum(
        api == "Metadata" for api in actual["api"].to_pylist()
    )
    assert registered.sql("select count(*) from asked").first()[0] == len(actual)


def test_records_without_values(registered: SparkSession) -> None:
    actual = (
        registered.read.format("kafka_capture")
        .options(table="records", values="false")
        .load([str(QUOTAS)])
        .toArrow()
    )
    exchanges = open_capture(QUOTAS).tables(["records"])["records"]
    assert len(actual) == len(exchanges) > 0
    assert sorted(actual["offset"].to_pylist()) == sorted(exchanges["offset"].to_pylist())
    assert actual["value"].null_count == len(actual)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "x", "table": "rows"}, "unknown table rows"),
        ({"path": "x", "apis": "Frobnicate"}, "no API is called Frobnicate"),
        ({"path": "x", "apis": "9999"}, "no API is called 9999"),
        ({"path": "x", "since": "yesterday"}, r"'yesterday' is not a time; use ISO 8601 \(\S+\)$"),
        ({"path": "x", "until": "90"}, r"'90' is not a time; use ISO 8601 \(\S+\)$"),
        ({"path": "x", "ports": "0"}, "ports must be an integer from 1 to 65535, not 0"),
        ({"path": "x", "watermark": "-1"}, "watermark must be a number, not -1"),
        ({"path": "x", "values": "maybe"}, "values must be true or false, not maybe"),
        ({"path": "x", "tabel": "errors"}, "unknown option tabel; .* Did you mean table?"),
        ({"path": "x", "state": "s3://b/s"}, "state must be the path of a folder, not .* s3://b/s"),
        ({"path": "x", "result_dir": "s3://b"}, "result_dir must be .*, not the URL s3://b"),
        ({}, "no captures: .*; Spark's catalog does not keep the options of a table"),
        (
            {"path": "x", "owner": "root", "provider": "kafka_capture", "option.table": "errors"},
            "^Spark's catalog does not keep the options of a table: use `create temporary view",
        ),
        ({"path": "x", "owner": "root"}, "unknown option owner"),
    ],
)
def test_invalid_options(given: dict[str, str], message: str) -> None:
    with pytest.raises(DissectorError, match=message):
        options.parse(given)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([StructField("lag", LongType())], "unknown column lag; the columns of exchanges are "),
        ([StructField("api", LongType())], "column api has the type string, not bigint"),
        ([StructField("api", StringType())] * 2, "column api is repeated; name each column once"),
    ],
)
def test_a_schema_has_columns_of_the_table(fields: list[StructField], message: str) -> None:
    with pytest.raises(DissectorError, match=f"^{message}"):
        check_schema("exchanges", StructType(fields))
    check_schema("exchanges", StructType([StructField("api", StringType(), nullable=False)]))


def test_spark_reports_invalid_options_and_captures(
    registered: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(AnalysisException, match="unknown table rows"):
        registered.read.format("kafka_capture").option("table", "rows").load(str(QUOTAS))
    with pytest.raises(AnalysisException, match="unknown column lag; the columns of exchanges"):
        registered.read.format("kafka_capture").option("columns", "lag").load(str(QUOTAS))
    with pytest.raises(AnalysisException, match="column api is repeated"):
        registered.read.format("kafka_capture").option("columns", "api,api").load(str(QUOTAS))
    with pytest.raises(AnalysisException, match="column api has the type string, not int"):
        registered.read.format("kafka_capture").schema("api int").load(str(QUOTAS)).count()
    with pytest.raises(AnalysisException, match="catalog does not keep the options of a table"):
        registered.sql(f"create table captured using kafka_capture options (path '{QUOTAS}')")
    with pytest.raises(AnalysisException, match=r"nothing\.pcap"):
        registered.read.format("kafka_capture").load(str(tmp_path / "nothing.pcap")).count()


def test_a_message_without_a_traceback(registered: SparkSession) -> None:
    """As docs/spark.md describes."""
    name = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"
    registered.conf.set(name, "true")
    try:
        with pytest.raises(AnalysisException) as raised:
            registered.read.format("kafka_capture").option("table", "rows").load(str(QUOTAS))
    finally:
        registered.conf.unset(name)
    assert "DissectorError: unknown table rows" in str(raised.value).splitlines()[0]


def raises(spark: SparkSession, request: options.Request, arguments: tuple[object, ...]) -> str:
    raise LookupError("unexpected")


def answers(spark: SparkSession, request: options.Request, arguments: tuple[object, ...]) -> str:
    return str(CAPTURES)


def test_a_stream_that_cannot_start_reports_the_cause(
    registered: SparkSession, tmp_path: Path
) -> None:
    """PySpark runs `stop` of a reader that was not created, and reports that error."""
    rows = registered.readStream.format("kafka_capture").load(str(tmp_path))
    query = (
        rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    )
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination()
    assert reason(raised.value).startswith(("a stream needs the option state", "streams need"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_unexpected_error_does_not_end_the_server() -> None:
    """Later queries would wait for it for ever."""
    client = PlanServer(None).plan_client
    with pytest.raises(DissectorError, match="the reason is on the driver's standard error"):
        client.request(raises, {"path": "x"})
    assert client.request(answers, {"path": "x"}) == []


def test_results_are_deleted_after_a_killed_driver(java: None, tmp_path: Path) -> None:
    """Jupyter kills kernels."""
    script = f"""
import sys
from analysis.spark.options import parse
from analysis.spark.session import session
from analysis.spark.source import write_result
request = parse({{"path": {str(QUOTAS)!r}, "result_dir": {str(tmp_path)!r}}})
print(write_result(session("local[1]"), request, ()), flush=True)
sys.stdin.read()
"""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", script], env=ENVIRONMENT, stdin=pipe, stdout=pipe
    ) as driver:
        assert driver.stdout
        result = Path(driver.stdout.readline().decode().strip())
        assert result.parents[1] == tmp_path
        assert [*result.glob("*/*.parquet")]
        driver.kill()
    limit = time.monotonic() + SOON
    while [*tmp_path.iterdir()] and time.monotonic() < limit:  # Java ends later
        time.sleep(0.1)
    assert not [*tmp_path.iterdir()]

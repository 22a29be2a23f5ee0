"""The Python API: its names, its arguments and its errors."""

from __future__ import annotations

import inspect
import os
import pydoc
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

import analysis
import dissector
from analysis.answers import ANSWERS, Answer
from analysis.cli import main
from dissector.errors import DissectorError
from dissector.tables import TABLES

ROOT = Path(__file__).parents[2]
CAPTURE = ROOT / "captures" / "kafka-4-quotas.pcap.zst"
ALL = pytest.mark.parametrize("answer", ANSWERS.values(), ids=lambda answer: answer.name)
GROUPED = pytest.mark.parametrize(
    "answer",
    [a for a in ANSWERS.values() if any(o.name == "by" and o.default for o in a.options)],
    ids=lambda answer: answer.name,
)
SCRIPT = """\
from pathlib import Path

import analysis
import dissector

tables = analysis.load("kafka.pcap", ports=[9092], jobs=2)
reveal_type(analysis.latency)
by_api = analysis.latency(tables, by="api")
by_both = analysis.latency(tables, by=["client_id", "api"], slowest=3)
slow = by_api.nlargest(10, "net_p99_ms")
arrow = dissector.open_capture("kafka.pcap").tables(["exchanges", "batches", "connections"])
analysis.latency(arrow)
analysis.latency("kafka.pcap", by="api")
analysis.errors([Path("a.pcap"), Path("b.pcap")])
analysis.errors(Path("captures").glob("*.pcap"))
analysis.diagnose(dissector.open_capture("kafka.pcap", keylog="keys.txt"))
analysis.compare("before.pcap", Path("after.pcap"))
analysis.lag(analysis.connect("kafka.pcap"), show="all")
for name in ("audit", "topology"):
    print(analysis.ANSWERS[name].question, analysis.__version__, dissector.__version__)
with dissector.open_capture("kafka.pcap", memory=1 << 28) as capture:
    for exchange in capture.exchanges(api="Fetch", client_id=["a", "b"]):
        explanation = exchange.explain("request")
        if explanation is not None:
            print(exchange, explanation.events[0].path, exchange.latency_ms)
"""
WRONG = """\
import analysis

tables = analysis.load("kafka.pcap", port=9092)
analysis.latency(tables, by=3)
analysis.latencies(tables)
analysis.lag(tables, shows="all")
"""


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return analysis.load(CAPTURE, list(TABLES))


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return analysis.connect(CAPTURE)


def test_the_package_lists_its_names() -> None:
    assert dir(analysis) == sorted(analysis.__all__)
    assert set(dir(analysis)) == {
        *ANSWERS, "ANSWERS", "DIAGNOSIS_TABLES", "Filter", "__version__", "compare",
        "connect", "cut", "diagnose", "load", "response_times", "trace",
    }  # fmt: skip


@ALL
def test_an_answer_has_a_signature_with_types(answer: Answer) -> None:
    function = getattr(analysis, answer.name)
    signature = inspect.signature(function)
    options = {option.name: option.default for option in answer.options}
    assert [*signature.parameters] == ["tables", *options]
    assert signature.return_annotation == "pd.DataFrame"
    for name, default in options.items():
        assert signature.parameters[name].default == default
        assert signature.parameters[name].annotation
    # Versions of Python differ in lines and quotes.
    shown = "".join(pydoc.plain(pydoc.render_doc(function)).replace("'", "").split())
    assert f"{answer.name}(tables:Tables" in shown
    assert ")->pd.DataFrame" in shown


def test_the_version_is_that_of_the_package() -> None:
    assert analysis.__version__ == dissector.__version__ == version("kafka-dissector")


def test_a_version_is_no_reason_to_fail_where_nothing_is_installed() -> None:
    code = (
        "import importlib.metadata as metadata\n"
        "def missing(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.version = missing\n"
        "import analysis; print(analysis.__version__)"
    )
    assert _python("-c", code) == "unknown\n"


@GROUPED
def test_one_column_may_be_a_text(answer: Answer, tables: dict[str, pd.DataFrame]) -> None:
    by = "topic" if answer.name == "delay" else "broker_port"
    rows = answer.function(tables, by=by)
    pd.testing.assert_frame_equal(rows, answer.function(tables, by=[by]))
    assert rows.columns[0] == by


def test_latency_by_api(tables: dict[str, pd.DataFrame]) -> None:
    """The numbers are those of the summary in the README."""
    rows = analysis.latency(tables, by="api").set_index("api")
    assert rows["count"].to_dict() | {"Produce": 35, "Fetch": 12, "Metadata": 26} == (
        rows["count"].to_dict()
    )


@GROUPED
def test_a_wrong_column_is_answered_with_the_nearest(
    answer: Answer, tables: dict[str, pd.DataFrame]
) -> None:
    wrong, right = ("topik", "topic") if answer.name == "delay" else ("borker_port", "broker_port")
    for by in (wrong, [wrong]):
        with pytest.raises(DissectorError, match=rf"no column {wrong} .*Did you mean {right}\?$"):
            answer.function(tables, by=by)


@ALL
def test_a_table_that_is_missing_is_named(answer: Answer, tables: dict[str, pd.DataFrame]) -> None:
    for missing in answer.tables:
        incomplete = {name: table for name, table in tables.items() if name != missing}
        with pytest.raises(DissectorError, match=rf"the table {missing} is missing") as raised:
            answer.function(incomplete)
        assert "kafka_dissector.load(paths, [" in str(raised.value)
        needed = [name for name in TABLES if f"'{name}'" in str(raised.value)]
        assert set(needed) == set(answer.tables)


@ALL
def test_a_connection_without_tables_is_an_error(answer: Answer) -> None:
    with duckdb.connect() as empty, pytest.raises(DissectorError, match="is missing"):
        answer.function(empty)


@pytest.mark.sampled(6)
@ALL
def test_tables_of_any_kind_give_the_same_rows(
    answer: Answer, tables: dict[str, pd.DataFrame], connection: duckdb.DuckDBPyConnection
) -> None:
    expected = answer.function(tables)
    arrow = dissector.open_capture(CAPTURE).tables(answer.tables)
    pd.testing.assert_frame_equal(answer.function(arrow), expected)
    pd.testing.assert_frame_equal(answer.function(connection), expected)


def test_exported_files_can_be_queried(tmp_path: Path, tables: dict[str, pd.DataFrame]) -> None:
    names = ANSWERS["latency"].tables
    with duckdb.connect() as connection:
        for name in names:
            file = tmp_path / f"{name}.parquet"
            main(["export", str(CAPTURE), "--table", name, "--format", "parquet", "-o", str(file)])
            connection.read_parquet(str(file)).create_view(name)
        rows = analysis.latency(connection, by="api")
    pd.testing.assert_frame_equal(rows, analysis.latency(tables, by="api"))


@pytest.mark.parametrize("given", [5, None, pd.DataFrame({"api": []})], ids=type)
def test_an_object_other_than_a_capture_is_an_error(given: Any) -> None:
    with pytest.raises(DissectorError, match=rf"\.load\(\), not a {type(given).__name__}$"):
        analysis.latency(given)


@pytest.mark.sampled(6)
@ALL
def test_an_answer_reads_only_its_tables(answer: Answer, tables: dict[str, pd.DataFrame]) -> None:
    expected = answer.function(tables)
    pd.testing.assert_frame_equal(answer.function(str(CAPTURE)), expected)
    with dissector.open_capture(CAPTURE) as capture:
        pd.testing.assert_frame_equal(answer.function(capture), expected)


def test_other_functions_read_a_capture_too(
    tables: dict[str, pd.DataFrame], one_rule: None
) -> None:
    pd.testing.assert_frame_equal(analysis.diagnose(CAPTURE), analysis.diagnose(tables))
    assert not len(analysis.compare(CAPTURE, [CAPTURE]))
    traced = analysis.trace(CAPTURE, topic="bulk", offset=0)
    pd.testing.assert_frame_equal(traced, analysis.trace(tables, topic="bulk", offset=0))


def test_paths_may_come_from_an_iterator(tables: dict[str, pd.DataFrame]) -> None:
    rows = analysis.throttle(CAPTURE.parent.glob(CAPTURE.name))
    pd.testing.assert_frame_equal(rows, analysis.throttle(tables))


READERS: dict[str, Callable[[list[Path]], pd.DataFrame]] = {
    "load": lambda paths: analysis.load(paths, "exchanges")["exchanges"],
    "answer": lambda paths: analysis.latency(paths, by=["api", "client_id"]),
    "connect": lambda paths: in_two_passes(analysis.connect(paths)),
}


def in_two_passes(connection: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    connection.sql("from connections").fetchall()
    rows: pd.DataFrame = connection.sql("from exchanges").df()
    return rows


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_cannot_be_read_is_a_warning(name: str, tmp_path: Path) -> None:
    """Otherwise an answer without rows would look like a capture without problems."""
    missing = tmp_path / "missing.pcap"
    for _ in range(2):  # each time, not once for each place in the code
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("default")
            rows = READERS[name]([CAPTURE, missing])
        (text,) = [str(warning.message) for warning in given]
        assert text.startswith(f"{missing}: No such file")
        assert name == "connect" or given[0].filename == __file__  # DuckDB calls from a thread
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pd.testing.assert_frame_equal(rows, READERS[name]([CAPTURE]))


@ALL
def test_a_wrong_value_is_an_error_before_anything_is_read(answer: Answer) -> None:
    for option in answer.options:
        wrong: list[Any] = [1.5, None, [1], float("nan"), b"1"]
        wrong += [-1, "x", True, 2**63] if isinstance(option.default, int) else [7]
        if option.read:
            wrong.remove(None)  # no file
        for value in wrong:
            shown = re.escape(repr(value))
            with pytest.raises(DissectorError, match=rf"^{option.name}\b.*{shown}"):
                answer.function("missing.pcap", **{option.name: value})


def test_an_integer_of_numpy_is_one(tables: dict[str, pd.DataFrame]) -> None:
    assert len(analysis.latency(tables, slowest=np.int32(3))) == 3  # type: ignore[arg-type]


def test_columns_may_come_from_any_iterable(tables: dict[str, pd.DataFrame]) -> None:
    by = ["client_id", "api"]
    expected = analysis.latency(tables, by=by)
    given: Any
    for given in (iter(by), pd.Index(by), np.array(by)):
        rows = analysis.latency(tables, by=given)
        pd.testing.assert_frame_equal(rows, expected)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: analysis.latency("x", by="api", slowest=3), "pass either by or slowest"),
        (lambda: analysis.skew("x", top=5), "top needs show='keys'"),
        (lambda: analysis.stuck("x", show="lag", min_ms=5), "min_ms needs show='offsets'"),
        (lambda: analysis.zones("x", by="api", show="consumers"), "by needs show='pairs'"),
    ],
)
def test_an_option_without_effect_is_an_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(DissectorError, match=f"^{sentence}$"):
        call()


def test_a_wrong_name_of_an_argument_is_an_error_before_anything_is_read() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'top'"):
        analysis.latency("missing.pcap", top=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="too many positional arguments"):
        analysis.latency("missing.pcap", "api")  # type: ignore[call-arg]


WRONG_CALLS: dict[str, Callable[[], object]] = {
    "confidence=1": lambda: analysis.compare(CAPTURE, CAPTURE, confidence=1),
    "confidence='1'": lambda: analysis.compare(CAPTURE, CAPTURE, confidence="1"),  # type: ignore[arg-type]
    "least_percent=nan": lambda: analysis.compare(CAPTURE, CAPTURE, least_percent=float("nan")),
    "limit=0": lambda: analysis.trace(CAPTURE, key="a", limit=0),
    "key=b'a'": lambda: analysis.trace(CAPTURE, key=b"a"),  # type: ignore[arg-type]
    "offset=1.5": lambda: analysis.trace(CAPTURE, offset=1.5),  # type: ignore[arg-type]
    "throttling=nan": lambda: analysis.diagnose(CAPTURE, thresholds={"throttling": float("nan")}),
    "throttling='5'": lambda: analysis.diagnose(CAPTURE, thresholds={"throttling": "5"}),  # type: ignore[dict-item]
    "context=-1": lambda: analysis.cut(CAPTURE, pd.DataFrame(), "x.pcapng", context=-1),
    "ports=9092": lambda: analysis.load(CAPTURE, ports=9092),  # type: ignore[arg-type]
    "ports=['9092']": lambda: analysis.load(CAPTURE, ports=["9092"]),  # type: ignore[list-item]
    "memory=-1": lambda: analysis.cut(CAPTURE, pd.DataFrame(), "x.pcapng", memory=-1),
    "ports=3": lambda: analysis.cut(CAPTURE, pd.DataFrame(), "x.pcapng", ports=3),  # type: ignore[arg-type]
    "chosen='app'": lambda: analysis.load(CAPTURE, chosen="app"),  # type: ignore[arg-type]
    "zone='UTC'": lambda: analysis.Filter(since="04:17:40", zone="UTC"),  # type: ignore[arg-type]
    "paths=b'a'": lambda: analysis.load(b"a"),  # type: ignore[arg-type]
    "paths=[1]": lambda: analysis.latency([1]),  # type: ignore[list-item]
    "paths=['']": lambda: analysis.load([""]),
    "tables='a.pcap'": lambda: analysis.Filter(client="app").apply("a.pcap"),  # type: ignore[arg-type]
    "tables=3": lambda: analysis.load(CAPTURE, 3),  # type: ignore[arg-type]
    "thresholds='app'": lambda: analysis.diagnose(CAPTURE, thresholds="app"),  # type: ignore[arg-type]
    "memory=0": lambda: analysis.load(CAPTURE, memory=0),
    "jobs=0": lambda: analysis.load(CAPTURE, jobs=0),
    "hold=<NA>": lambda: analysis.load(CAPTURE, hold=pd.NA),  # type: ignore[arg-type]
    "show_secrets='no'": lambda: analysis.load(CAPTURE, show_secrets="no"),  # type: ignore[arg-type]
    "unchanged=<NA>": lambda: analysis.compare(CAPTURE, CAPTURE, unchanged=pd.NA),  # type: ignore[arg-type]
    "secrets=<NA>": lambda: analysis.cut(CAPTURE, pd.DataFrame(), "x", secrets=pd.NA),  # type: ignore[arg-type]
    "overwrite=1": lambda: analysis.cut(CAPTURE, pd.DataFrame(), "x", overwrite=1),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("wrong", WRONG_CALLS)
def test_wrong_values_of_other_functions(wrong: str) -> None:
    name, _, value = wrong.partition("=")
    with pytest.raises(DissectorError, match=f"^{name} must be .*, not {re.escape(value)}$"):
        WRONG_CALLS[wrong]()


def test_columns_that_are_missing_or_of_another_type(tables: Mapping[str, pd.DataFrame]) -> None:
    exchanges = tables["exchanges"]
    for wrong, error in (
        (exchanges.drop(columns="client_id"), "no column client_id"),
        (exchanges.assign(client_id=[[1]] * len(exchanges)), "another type: .*client_id"),
        (exchanges.explode("topics"), r"another type: [^()]+; [^()]+ topics [^()]+$"),
    ):
        with pytest.raises(DissectorError, match=f"the table exchanges has .*{error}"):
            analysis.latency({**tables, "exchanges": wrong})


def test_rows_that_a_user_has_chosen(tables: Mapping[str, pd.DataFrame]) -> None:
    chosen = tables["exchanges"].query("api == 'Produce'")
    rows = analysis.latency({**tables, "exchanges": chosen}, by="api")
    assert rows[["api", "count"]].to_numpy().tolist() == [["Produce", 35]]


def test_a_script_of_a_user_is_typed(tmp_path: Path) -> None:
    script, wrong = tmp_path / "script.py", tmp_path / "wrong.py"
    script.write_text(SCRIPT)
    wrong.write_text(WRONG)
    lines = _python(
        "-m", "mypy", "--strict", "--config-file", os.devnull, "--follow-imports", "silent",
        "--hide-error-context", "--cache-dir", str(tmp_path / "cache"), str(script), str(wrong),
        check=False, MYPYPATH=str(ROOT),
    ).splitlines()  # fmt: skip
    (revealed,) = (line for line in lines if "Revealed type" in line)
    assert revealed.startswith(f"{script}:")
    assert "tables:" in revealed
    assert "slowest: " in revealed
    errors = [line.split(": error: ")[0] for line in lines if ": error: " in line]
    assert errors == [f"{wrong}:{number}" for number in (3, 4, 5, 6)]


def _python(*arguments: str, check: bool = True, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], check=check, cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    ).stdout  # fmt: skip

"""Exported tables have the answers of their capture."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import analysis
import dissector
from analysis.answers import ANSWERS
from analysis.cli import main
from analysis.commands import export
from analysis.export.files import claimed
from analysis.input.exported import ExportedTables, is_exported
from analysis.input.filters import Filter
from analysis.sql.stored import stored
from dissector.errors import CaptureError, DissectorError
from dissector.tables import TABLES
from tests.analysis.answering import opened, path_of
from tests.analysis.commands import Ran

NAMES = (
    "kafka-4-quotas", "kafka-4-transactions", "kafka-4-group-share", "kafka-4-errors",
    "kafka-4-cut-midway",
)  # fmt: skip
QUOTAS = str(path_of("kafka-4-quotas"))


def exported(name: str, folder: Path) -> Path:
    path = path_of(name)
    assert main(["export", str(path), "--table", "all", "-o", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def quotas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of kafka-4-quotas. Tests do not change them."""
    return exported("kafka-4-quotas", tmp_path_factory.mktemp("quotas"))


@pytest.fixture
def edited(quotas: Path, tmp_path: Path) -> Path:
    return shutil.copytree(quotas, tmp_path, dirs_exist_ok=True)


def divided(name: str, folder: Path) -> Path:
    """The tables as the Spark job writes them: by date and API, with nanoseconds, in any order."""
    path = path_of(name)
    for table, rows in dissector.open_capture(path).tables(TABLES).items():
        rows = rows[::-1]
        first = next(iter(c for c in rows.schema if pa.types.is_timestamp(c.type))).name
        date = rows[first].cast(pa.timestamp("ns")).cast(pa.date32())
        for field in rows.schema:
            if pa.types.is_timestamp(field.type):
                ns = rows[field.name].cast(pa.int64())
                place = rows.schema.get_field_index(field.name)
                rough = rows[field.name].cast(pa.timestamp("us", "UTC"), safe=False)
                rows = rows.set_column(place, field.name, rough)
                rows = rows.append_column(f"{field.name}_ns", ns)
        rows = rows.append_column("date", date)
        by = [rows.schema.field(n) for n in ("date", "api") if n in rows.schema.names]
        (folder / table).mkdir(parents=True)
        ds.write_dataset(
            rows, folder / table, format="parquet",
            partitioning=ds.partitioning(pa.schema(by), flavor="hive"),
        )  # fmt: skip
    return folder


@pytest.mark.sampled(5)
@pytest.mark.parametrize("write", [exported, divided])
@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_that_of_the_capture(name: str, write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    tables = write(name, tmp_path / "tables")
    path = path_of(name)
    names = {table for answer in ANSWERS.values() for table in answer.tables}
    with (
        stored(dissector.open_capture(path).stream(names), names) as capture,
        stored(ExportedTables([tables]).stream(names), names) as parquet,
    ):
        for answer in ANSWERS.values():
            expected = answer.function(capture)
            pd.testing.assert_frame_equal(answer.function(parquet), expected)


def test_exported_rows_are_those_of_the_capture(tmp_path: Path) -> None:
    folder = exported("kafka-4-transactions", tmp_path)
    path = path_of("kafka-4-transactions")
    whole = dissector.open_capture(path).tables(TABLES)
    rows = ExportedTables([folder]).tables()
    for table in TABLES:
        assert rows[table].equals(whole[table]), table
    pd.testing.assert_frame_equal(
        analysis.load(folder, "errors")["errors"], analysis.load(path, "errors")["errors"]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["latency", "--client", "producer", "--since", "1"],
        ["lag"],
        ["sql"],
        ["export", "--table", "batches", "--format", "csv"],
    ],
)
def test_a_command_reads_exported_tables(arguments: list[str], quotas: Path, ran: Ran) -> None:
    name, *options = arguments
    query = ["select api, count(*) from exchanges group by all order by 1"] if name == "sql" else []
    outputs = [ran(name, path, *options, *query) for path in (QUOTAS, str(quotas))]
    assert outputs[0] == outputs[1]
    assert outputs[0].out


def test_the_summary_of_exported_tables(quotas: Path, ran: Ran) -> None:
    whole, tables = (
        ran("summary", path).out.replace(path, "PATH") for path in (QUOTAS, str(quotas))
    )
    assert tables == whole.replace("523 packets, ", "")


def test_a_table_that_was_not_exported_is_named(tmp_path: Path, ran: Ran) -> None:
    file = tmp_path / "rows.parquet"
    assert main(["export", QUOTAS, "-o", str(file)]) == 0
    error = ran("latency", str(file), status=1).err.splitlines()[-1]
    assert error == (
        f"Error: {file}: the tables batches, connections were not exported: "
        "kafka-dissector export CAPTURE... --table batches --table connections -o DIR"
    )
    assert "exported tables do not contain messages" in ran("show", str(file), status=1).err


@pytest.mark.parametrize(
    ("name", "target", "command"),
    [
        ("exchanges.parquet", "topics.parquet", "export CAPTURE... --table topics"),
        ("exchanges/date=2026-11-21/a.parquet", "", "spark CAPTURE... --table topics"),
    ],
)
def test_the_command_that_adds_a_table(
    tmp_path: Path, name: str, target: str, command: str
) -> None:
    """A folder of export has a file for each table, one of Spark a folder."""
    folder = tmp_path / "my tables"
    (folder / name).parent.mkdir(parents=True)
    assert main(["export", QUOTAS, "-o", str(folder / name)]) == 0
    opened = ExportedTables([folder])
    with pytest.raises(DissectorError, match="the table topics was not exported: ") as error:
        next(opened.stream(["exchanges", "topics"]))
    assert str(error.value).endswith(f"kafka-dissector {command} -o '{folder / target}'")


def test_tables_of_two_captures_in_one_folder_are_not_mixed(edited: Path, ran: Ran) -> None:
    """Software of other connections would be that of old clients."""
    old = str(path_of("kafka-3-java-0-9"))
    tables = ["--table", "exchanges", "--table", "errors", "-o", str(edited), "--overwrite"]
    ran("export", old, *tables)
    assert "are of different captures" in ran("versions", str(edited), status=1).err
    for file in {*edited.iterdir()} - {edited / "exchanges.parquet", edited / "errors.parquet"}:
        file.unlink()
    added = ["--table", "connections", "-o", str(edited / "connections.parquet")]
    assert main(["export", old, *added]) == 0
    assert main(["versions", str(edited)]) == 0


def test_packets_are_not_exported(tmp_path: Path, ran: Ran) -> None:
    file = tmp_path / "rows.parquet"
    ran("export", QUOTAS, "-o", str(file))
    err = ran("cut", str(file), "--api", "Produce", "-o", str(tmp_path / "x.pcapng"), status=1).err
    assert err == f"Error: {file}: exported tables do not contain packets; use the capture\n"
    with pytest.raises(CaptureError, match="do not contain packets"):
        analysis.cut(file, pq.read_table(file), tmp_path / "x.pcapng")


def test_other_parquet_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1]}), file)
    assert is_exported([file])
    with pytest.raises(CaptureError, match="does not have the columns of a table"):
        ExportedTables([file])
    file.write_bytes(b"not parquet")
    with pytest.raises(CaptureError, match="cannot be read as Parquet"):
        ExportedTables([file])


@pytest.mark.parametrize("command", ["summary", "quality", "diagnose", "sql"])
@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("client_id", pa.array([b"\xff"], pa.binary()).view(pa.string())),
        ("connection_id", pa.array([["x"]])),
        ("latency_ms", pa.array([1], pa.duration("ns"))),
        ("topics", pa.array([{"a": 1}])),
    ],
)
def test_columns_with_other_values_are_one_error(
    name: str, column: pa.Array, command: str, edited: Path, ran: Ran
) -> None:
    file = edited / "exchanges.parquet"
    rows = pq.read_table(file).slice(0, 1)
    pq.write_table(rows.set_column(rows.schema.get_field_index(name), name, column), file)
    query = ["select count(client_id), any_value(columns(*)) from exchanges"]
    error = ran(command, str(edited), *(query if command == "sql" else []), status=1).err
    assert error.startswith(f"Error: {file} cannot be read: ")
    assert error.count("\n") == 1


def test_columns_with_the_same_name_are_an_error(edited: Path) -> None:
    rows = pq.read_table(edited / "exchanges.parquet")
    pq.write_table(rows.append_column("capture", rows["capture"]), edited / "exchanges.parquet")
    with pytest.raises(CaptureError, match="exists 2 times"):
        ExportedTables([edited]).tables("exchanges")


def test_a_column_name_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"capture": ["x"]}), file := tmp_path / "x.parquet")
    whole = file.read_bytes()
    position = whole.index(b"capture")  # in Parquet's own schema
    file.write_bytes(whole[:position] + b"\xff" + whole[position + 1 :])
    with pytest.raises(CaptureError, match="cannot be read as Parquet"):
        ExportedTables([file])


@pytest.mark.parametrize("name", ["X.PARQUET", "x.pq"])
def test_every_suffix_of_parquet_is_read(tmp_path: Path, name: str) -> None:
    """`export` writes files with these names as Parquet."""
    file = tmp_path / name
    assert main(["export", QUOTAS, "-o", str(file)]) == 0
    assert is_exported([file])
    assert len(ExportedTables([tmp_path]).tables()["exchanges"]) == 137


def test_captures_next_to_tables_are_read(edited: Path) -> None:
    assert is_exported([edited])
    (edited / "x.pcap.zst").write_bytes(Path(QUOTAS).read_bytes())
    assert not is_exported([edited])


def test_batches_with_and_without_decompression_are_different_tables(quotas: Path) -> None:
    for name in ("batches", "decompressed_batches"):
        assert ExportedTables([quotas / f"{name}.parquet"]).tables().keys() == {name}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "several tables need a folder: -o DIR"),
        (["-o", "rows.csv"], "several tables are written as parquet, not csv"),
        (["-o", "tables", "--columns", "api"], "--columns needs a single table"),
    ],
)
def test_several_tables_need_a_folder(options: list[str], message: str, ran: Ran) -> None:
    assert message in ran("export", QUOTAS, "--table", "all", *options, status=2).err


def test_the_unfinished_tables_of_another_process_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    unfinished = tmp_path / "topics.parquet.partial"
    unfinished.write_bytes(b"rows")
    command = ["export", QUOTAS, "--table", "all", "-o", str(tmp_path)]
    error = ran(*command, status=2).err
    assert f"{unfinished} exists: pass --overwrite" in " ".join(error.split("\n"))
    # The other process starts after the check.
    monkeypatch.setattr(export, "_folder", lambda names, output, captures: output.file)
    assert ran(*command, status=1).err == f"Error: {unfinished}: File exists\n"
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"rows"]


@pytest.mark.parametrize("names", [["all"], ["batches"]])
def test_the_tables_that_another_process_writes_stay(
    names: list[str], tmp_path: Path, ran: Ran
) -> None:
    """It uses --overwrite, too."""
    table = "topics" if names == ["all"] else "batches"
    unfinished = tmp_path / f"{table}.parquet.partial"
    output = tmp_path if names == ["all"] else tmp_path / "batches.parquet"
    command = ["export", QUOTAS, "--table", *names, "-o", str(output), "--overwrite"]
    with claimed(unfinished, is_new=True):
        unfinished.write_bytes(b"rows")
        expected = f"Error: {unfinished}: another process writes to this file\n"
        assert ran(*command, status=1).err == expected
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"rows"]
    ran(*command)
    assert not unfinished.exists()


def test_relative_times_need_a_first_time(quotas: Path) -> None:
    chosen = Filter(since="20")
    early = analysis.load(QUOTAS, "exchanges", chosen)["exchanges"]
    pd.testing.assert_frame_equal(analysis.load(quotas, "exchanges", chosen)["exchanges"], early)
    with pytest.raises(DissectorError, match="the time of the first packet is not known"):
        chosen.apply({"exchanges": early})


def test_columns_that_an_earlier_export_lacks_are_null(tmp_path: Path) -> None:
    path = path_of("kafka-4-errors")
    whole = dissector.open_capture(path).tables(["errors"])["errors"]
    assert whole["resource"].null_count < len(whole)
    pq.write_table(whole.drop_columns("resource"), tmp_path / "errors.parquet")
    rows = ExportedTables([tmp_path]).tables("errors")["errors"]
    nulls = pa.nulls(len(whole), pa.string())
    assert rows.equals(whole.set_column(whole.num_columns - 1, "resource", nulls))
    pq.write_table(whole.drop_columns("error"), tmp_path / "errors.parquet")
    with pytest.raises(CaptureError, match="does not have the columns of a table"):
        ExportedTables([tmp_path])


@pytest.mark.parametrize(
    ("column", "value"), [("client_ip", None), ("latency_ms", 1e25), ("client_packets", -(1 << 63))]
)
def test_edited_tables_raise_no_traceback(
    column: str, value: object, edited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in edited.glob("*.parquet"):
        table = pq.read_table(path)
        if column in table.column_names:
            index = table.column_names.index(column)
            field = table.schema.field(index)
            values = pa.array([value] * len(table), field.type)
            pq.write_table(table.set_column(index, field, values), path)
    for command in ("summary", "latency", "network", "diagnose"):
        assert main([command, str(edited)]) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err


DAYS = ("kafka-4-quotas", "kafka-4-group-eager", "kafka-4-replicated")


def test_tables_and_a_capture_are_not_read_together(quotas: Path, ran: Ran) -> None:
    error = ran("latency", QUOTAS, str(quotas), status=1).err
    assert "a Parquet file, not a capture: read exported tables without captures" in error


@pytest.fixture(scope="module")
def days() -> dict[str, pd.DataFrame]:
    """Answers about these captures, by name."""
    names = ("clients", "network", "security", "lag", "topology", "batching")
    with opened(*DAYS) as tables:
        return {name: ANSWERS[name].function(tables) for name in names}


@pytest.fixture(scope="module")
def exported_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of each of these captures in its folder. Tests do not change them."""
    folder = tmp_path_factory.mktemp("days")
    for name in DAYS:
        exported(name, folder / f"date={name}")
    return folder


@pytest.mark.parametrize("form", ["file", "folder", "sniff"])
def test_exports_of_several_captures_are_as_the_captures(
    days: dict[str, pd.DataFrame], exported_days: Path, tmp_path: Path, form: str
) -> None:
    """Each numbers its connections from 0. `file`: of export; `folder`: of the Spark job; `sniff`:
    in the same folder, after a restart."""
    shutil.copytree(exported_days, tmp_path, dirs_exist_ok=True)
    for hour, name in enumerate(DAYS):
        folder = tmp_path / f"date={name}"
        for file in folder.glob("*.parquet") if form != "file" else ():
            target = folder / file.stem / "day=1" / "part-0.parquet"
            if form == "sniff":
                started = f"20261128T{hour:02}0000.123456Z"
                target = tmp_path / file.stem / f"{file.stem}-{started}-00001.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
        if form == "sniff":
            folder.rmdir()
    for name, expected in days.items():
        pd.testing.assert_frame_equal(ANSWERS[name].function(tmp_path), expected)


def test_an_export_that_was_divided_keeps_its_numbers(tmp_path: Path) -> None:
    """As by COPY ... PARTITION_BY of DuckDB: no connection has a row in both parts."""
    whole = dissector.open_capture(QUOTAS).tables(["connections", "exchanges"])
    for name, rows in whole.items():
        column = "first_time" if name == "connections" else "request_time"
        rows = rows.sort_by(column)
        for part, (start, end) in enumerate([(0, len(rows) // 2), (len(rows) // 2, len(rows))]):
            folder = tmp_path / f"part={part}"
            folder.mkdir(exist_ok=True)
            pq.write_table(rows.slice(start, end - start), folder / f"{name}.parquet")
    read = ExportedTables([tmp_path]).tables(["connections", "exchanges"])
    for name, rows in whole.items():
        ids = sorted(rows["connection_id"].to_pylist())
        assert sorted(read[name]["connection_id"].to_pylist()) == ids


def test_bytes_of_row_groups_that_were_read_do_not_stay_in_memory(tmp_path: Path) -> None:
    schema, count = TABLES["problems"].schema, 200_000
    columns = {field.name: pa.nulls(count, field.type) for field in schema}
    digits = np.random.default_rng(0).integers(48, 58, (count, 100), np.uint8)
    columns["detail"] = pa.array(digits.view("S100")[:, 0]).cast(pa.string())
    file = tmp_path / "problems.parquet"
    pq.write_table(pa.table(columns, schema), file, row_group_size=10_000, compression="none")
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in ExportedTables([file]).stream()]
    assert held[-1] < file.stat().st_size / 2

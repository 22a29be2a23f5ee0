"""Output files of commands: where they may be, and what is created for them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from analysis.cli import main
from tests.analysis.commands import PLAIN, Ran
from tests.analysis.made_rows import Make, exchange


def test_an_output_that_cannot_be_written_is_status_1(made: Make, ran: Ran) -> None:
    made(exchanges=[exchange()])
    path = "/proc/x.jsonl"  # not even root can create it
    error = ran("export", "x.pcap", "-o", path, status=1).err
    assert error == f"Error: {path}: No such file or directory\n"


@pytest.mark.parametrize(
    "command",
    [
        *(f"{name} missing.pcap" for name in ("export", "latency", "cut", "report")),
        "export missing.pcap --table all",
        "trace missing.pcap --offset 1",
        "wireshark-plugin",
    ],
)
def test_an_output_is_not_inside_a_file(command: str, tmp_path: Path, ran: Ran) -> None:
    """The capture is not read before."""
    file = tmp_path / "file"
    file.touch()
    err = ran(*command.split(), "-o", str(file / "a" / "x"), status=2).err
    assert f"{file} is a file, not a folder: choose another folder" in " ".join(err.split())


@pytest.mark.parametrize(
    "command",
    [
        "export",
        "export --table errors --table topics",
        *("latency", "latency --format table", "cut"),
        *(f"sniff --view none {option}" for option in ("--output", "--write", "--export")),
    ],
)
def test_missing_folders_of_an_output_are_created(command: str, tmp_path: Path) -> None:
    verb, *options = command.split()
    output = options.pop() if verb == "sniff" else "-o"
    assert main([verb, PLAIN, *options, output, str(tmp_path / "a" / "b" / "x")]) == 0
    assert (tmp_path / "a" / "b" / "x").exists()


@pytest.mark.parametrize("command", ["export", "export --table all"])
def test_after_an_error_no_new_folder_remains(command: str, tmp_path: Path) -> None:
    damaged = tmp_path / "x.pcap"
    damaged.write_bytes(b"no capture")
    (tmp_path / "a").mkdir()
    assert main([*command.split(), str(damaged), "-o", str(tmp_path / "a" / "b" / "x.pq")]) > 0
    assert list((tmp_path / "a").iterdir()) == []


@pytest.mark.parametrize("command", ["export", "latency", "cut", "report"])
def test_the_folder_of_an_output_must_be_writable(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    """The capture is not read before. For root, a folder without permissions is writable."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    err = ran(command, "missing.pcap", "-o", str(tmp_path / "x.csv"), status=2).err
    assert f"cannot create a file in {tmp_path}: choose another folder" in " ".join(err.split())


@pytest.mark.parametrize(
    "command",
    [
        *("export x.pcap -o x.pcap", "export link.pcap -o x.pcap", "cut . -o x.pcap"),
        *("cut *.pcap -o x.pcap", "export . -o ./x.pcap --format csv"),
        *("export tables --table all -o tables", "export tables -o tables/exchanges.parquet"),
    ],
)
def test_the_output_must_not_be_an_input(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    """Also if a folder, a pattern or another name of the file is the input."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(PLAIN, "x.pcap")
    Path("link.pcap").symlink_to("x.pcap")
    ran("export", "x.pcap", "--table", "all", "-o", "tables")
    err = ran(*command.split(), "--overwrite", status=2).err
    assert "is an input file: choose another output file" in err
    assert Path("x.pcap").read_bytes() == Path(PLAIN).read_bytes()


def test_an_output_may_be_next_to_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(PLAIN, "x.pcap")
    for words in (["export", "-o", "x.csv"], ["export", "-o", "x.parquet"], ["export", "-o", "x"]):
        for _ in range(2):
            assert main([*words, ".", "--overwrite"]) == 0

"""The manual page and completions: they are valid, and installed."""

from __future__ import annotations

import shutil
import subprocess
import tomllib

import pytest

from analysis.answers import ANSWERS
from analysis.cli import COMMANDS, main
from tools.share_files import ROOT, manual_page, share_files


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_manual_page_has_all_commands_and_no_warnings() -> None:
    command = ["groff", "-man", "-Tascii", "-ww", "-P", "-cbou"]
    run = subprocess.run(command, input=manual_page().encode(), capture_output=True, timeout=180)
    assert (run.returncode, run.stderr) == (0, b"")
    lines = run.stdout.decode().splitlines()
    assert {f"   {name}" for name in (*COMMANDS, *ANSWERS)} <= set(lines)
    assert "       kafka-dissector - Analyse captured Kafka network traffic." in lines


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("kafka-dissector lat", ["plain,latency"]),
        ("kafka-dissector export --table ex", ["plain,exchanges"]),
        ("kafka-dissector show --only un", ["plain,unanswered", "plain,undecoded"]),
        ("kafka-dissector summary capt", ["file,capt"]),
        ("kafka-dissector report -o rep", ["file,rep"]),
    ],
)
def test_shells_complete_commands_values_and_files(
    words: str, completions: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("_KAFKA_DISSECTOR_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert capsys.readouterr().out.splitlines() == completions


def test_all_files_are_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    data_files = project["tool"]["setuptools"]["data-files"]
    installed = {
        f"{folder}/{path.rpartition('/')[2]}": path
        for folder, paths in data_files.items()
        for path in paths
    }
    assert all(target == source for target, source in installed.items())
    assert installed.keys() == {path.relative_to(ROOT).as_posix() for path in share_files()}

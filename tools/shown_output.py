"""Refresh command output in documentation pages, so that it matches what the commands print.

In a code block, a line ``$ kafka-dissector …`` is followed by the output of that command, run in
the repository's folder. With ``| head -N`` at its end, only the first N lines follow.
"""

from __future__ import annotations

import re
from contextlib import chdir, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Final

from analysis.cli import main as run

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ("README.md", "docs/slow.md")

_COMMAND: Final = r"^(?P<indent> +)\$ kafka-dissector (?P<line>.*)\n"
_OUTPUT: Final = r"(?:(?P=indent)(?!\$ ).*\n|\n(?=(?P=indent)(?!\$ )))*"
_SHOWN: Final = re.compile(_COMMAND + _OUTPUT, re.MULTILINE)


def shown() -> dict[Path, str]:
    """The text of each page that shows output, with current output."""
    return {ROOT / name: fresh((ROOT / name).read_text()) for name in PAGES}


def fresh(text: str) -> str:
    """The text of a page with current output."""
    return _SHOWN.sub(_run, text)


def _run(match: re.Match[str]) -> str:
    line = match["line"]
    command, _, limit = line.partition(" | head -")
    output = TextIOWrapper(BytesIO(), "utf-8")  # jsonl and csv go to the bytes below the text
    with redirect_stdout(output), chdir(ROOT):
        status = run(command.split())
    assert status == 0, f"status {status}: {line}"
    output.seek(0)
    lines = output.read().splitlines()[: int(limit) if limit else None]
    block = [f"$ kafka-dissector {line}", *lines]
    return "".join((match["indent"] + text).rstrip() + "\n" for text in block)

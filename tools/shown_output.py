"""Refresh command output in documentation pages, so that it matches what the commands print.

The pages are README.md and those below `docs`. In a code block, a line ``$ kafka-dissector …`` is
followed by the output of that command, run in the repository's folder. With ``| head -N`` at its
end, only the first N lines follow.
"""

from __future__ import annotations

import re
import shlex
from contextlib import chdir, redirect_stdout
from functools import cache
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Final

from analysis.cli import main as run

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"

_COMMAND: Final = r"^(?P<indent> +)\$ kafka-dissector (?P<line>.*)\n"
_OUTPUT: Final = r"(?:(?P=indent)(?!\$ ).*\n|\n(?=(?P=indent)(?!\$ )))*"
_SHOWN: Final = re.compile(_COMMAND + _OUTPUT, re.MULTILINE)


def pages() -> list[Path]:
    """The pages that contain output."""
    files = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [path for path in files if _SHOWN.search(path.read_text())]


def shown() -> dict[Path, str]:
    """The text of each page that contains output, with current output."""
    return {path: fresh(path.read_text()) for path in pages()}


def fresh(text: str) -> str:
    """The text of a page with current output."""
    return _SHOWN.sub(_run, text)


def _run(match: re.Match[str]) -> str:
    line = match["line"]
    command, _, limit = line.partition(" | head -")
    lines = _output(command)[: int(limit) if limit else None]
    block = [f"$ kafka-dissector {line}", *lines]
    return "".join((match["indent"] + text).rstrip() + "\n" for text in block)


@cache
def _output(command: str) -> list[str]:
    """The lines that a command prints. Several pages show the same one."""
    output = TextIOWrapper(BytesIO(), "utf-8")  # jsonl and csv go to the bytes below the text
    with redirect_stdout(output), chdir(ROOT):
        status = run(shlex.split(command))
    assert status == 0, f"status {status}: {command}"
    output.seek(0)
    return output.read().splitlines()

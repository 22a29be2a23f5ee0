"""Output that documentation shows, made anew: no page shows what a command does not print.

In a block of code, what stands below a line ``$ kafka-dissector …`` is what that command prints
when it is run from the repository's folder, or, where the line ends with ``| head -N``, the first N
lines of it.
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
    """Every page that shows output, with what its commands print now."""
    return {ROOT / name: fresh((ROOT / name).read_text()) for name in PAGES}


def fresh(text: str) -> str:
    """A page, with what its commands print now."""
    return _SHOWN.sub(_again, text)


def _again(found: re.Match[str]) -> str:
    line = found["line"]
    command, _, limit = line.partition(" | head -")
    output = TextIOWrapper(BytesIO(), "utf-8")  # jsonl and csv go to the bytes below the text
    with redirect_stdout(output), chdir(ROOT):
        status = run(command.split())
    assert status == 0, f"status {status}: {line}"
    output.seek(0)
    lines = output.read().splitlines()[: int(limit) if limit else None]
    every = [f"$ kafka-dissector {line}", *lines]
    return "".join((found["indent"] + each).rstrip() + "\n" for each in every)

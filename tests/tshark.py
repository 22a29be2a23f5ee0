"""Fields of packets as tshark reads them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def tshark(path: Path, fields: Sequence[str], *options: str) -> list[list[str]]:
    """The fields of each packet that the options of tshark select."""
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", *options]
    command += [word for field in fields for word in ("-e", field)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return [line.split("\t") for line in run.stdout.splitlines()]

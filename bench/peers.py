"""The measured programs and their commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

OURS = "kafka-dissector"
"""The project in one process."""
OURS_ON_TWO = f"{OURS} --jobs 2"
FLOOR = "tcpdump"
TSHARK = "tshark"
PROGRAM = str(Path(sys.executable).parent / OURS)
"""The project's own command, from the environment that runs the benchmark."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A program or library that reads captures."""

    name: str
    does: str
    """Its output, because each program does something different."""
    is_library: bool = False
    """Whether it is a Python library, which runs in `loops`."""
    on_part: bool = False
    """Whether it is too slow for a whole input."""

    def version(self) -> str:
        """Its version; empty if it is not installed."""
        if self.name.startswith(OURS):
            return ""
        if self.is_library:
            with suppress(metadata.PackageNotFoundError):
                return metadata.version(self.name)
            return ""
        if shutil.which(self.name) is None:
            return ""
        result = subprocess.run([self.name, "--version"], capture_output=True, text=True)
        words = (result.stdout + result.stderr).split()
        return next((word.strip(".,") for word in words if word[0].isdigit()), "")


PEERS = (
    Peer(OURS, "exchanges to Parquet"),
    Peer(OURS_ON_TWO, "exchanges to Parquet, on two processors"),
    Peer(FLOOR, "packets to /dev/null (floor)"),
    Peer(TSHARK, "correlation ids as text"),
    Peer("dpkt", "loop that counts messages", is_library=True),
    Peer("scapy", "loop that counts messages, on a part", is_library=True, on_part=True),
    Peer("pyshark", "objects from tshark, on a part", is_library=True, on_part=True),
)


def command(name: str, capture: Path, broker_ports: Sequence[int], output: Path) -> list[str]:
    """The command of a program for a capture."""
    if name.startswith(OURS):
        return export(capture, "exchanges", output, jobs=2 if name == OURS_ON_TWO else 1)
    if name == FLOOR:
        return [FLOOR, "-r", str(capture), "-w", "/dev/null"]
    if name == TSHARK:
        decode = [word for port in broker_ports for word in ("-d", f"tcp.port=={port},kafka")]
        return [TSHARK, "-r", str(capture), *decode, "-T", "fields", "-e", "kafka.correlation_id"]
    return [sys.executable, "-m", "bench.loops", name, str(capture)]


def export(capture: Path, table: str, output: Path, *, jobs: int = 1) -> list[str]:
    """The project's command that writes a table as Parquet."""
    return [
        *(PROGRAM, "export", str(capture), "--table", table),
        *("--format", "parquet", "-o", str(output), "--overwrite", "--jobs", str(jobs)),
    ]

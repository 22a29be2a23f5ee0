"""Who is measured, and by which command."""

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
"""In one process."""
OURS_ON_TWO = f"{OURS} --jobs 2"
OURS_PURE = f"{OURS}, nothing compiled"
FLOOR = "tcpdump"
TSHARK = "tshark"
PROGRAM = str(Path(sys.executable).parent / OURS)
"""The project's own command, from the environment that runs the benchmark."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody who reads captures."""

    name: str
    does: str
    """What comes out, since no two do the same."""
    is_library: bool = False
    """Runs in `loops`, in this environment."""
    on_part: bool = False
    """Too slow for a whole input."""

    def version(self) -> str:
        """Its version; empty where it is not installed."""
        if self.name.startswith(OURS):
            return ""
        if self.is_library:
            with suppress(metadata.PackageNotFoundError):
                return metadata.version(self.name)
            return ""
        if shutil.which(self.name) is None:
            return ""
        said = subprocess.run([self.name, "--version"], capture_output=True, text=True)
        words = (said.stdout + said.stderr).split()
        return next((word.strip(".,") for word in words if word[0].isdigit()), "")


PEERS = (
    Peer(OURS, "exchanges to Parquet"),
    Peer(OURS_ON_TWO, "the same, on two processors"),
    Peer(OURS_PURE, "the same in one process, by NumPy alone"),
    Peer(FLOOR, "copies packets to /dev/null: the floor"),
    Peer(TSHARK, "correlation ids as text"),
    Peer("dpkt", "a loop that counts messages", is_library=True),
    Peer("scapy", "the same, on a part", is_library=True, on_part=True),
    Peer("pyshark", "objects of what tshark decodes, on a part", is_library=True, on_part=True),
)


def command(name: str, capture: Path, broker_ports: Sequence[int], output: Path) -> list[str]:
    """The command by which somebody reads a capture."""
    if name.startswith(OURS):
        line = export(capture, "exchanges", output, jobs=2 if name == OURS_ON_TWO else 1)
        return ["env", "KAFKA_DISSECTOR_PURE=1", *line] if name == OURS_PURE else line
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

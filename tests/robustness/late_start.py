"""`python -m tests.robustness.late_start [CAPTURE...]`: captures that begin late.

A copy of a capture lacks the first N packets and ends `--window` packets later; N goes from 1 to
`--packets`. Each copy is read twice. Without the ports of brokers, no row may have a broker as the
client. With the ports, each exchange inside the copy must have a row. Exit status 1 if a row is
wrong or missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dissector
from tests.robustness.robustness_damage import Recording, recording, recordings

Endpoint = tuple[str, int]
Key = tuple[str, ...]
TABLES = ("connections", "exchanges")
KEY = ("client_ip", "client_port", "broker_port", "api", "api_version", "correlation_id",
       "request_bytes", "response_bytes", "request_time", "response_time")  # fmt: skip
NO_BROKER = (1,)
"""A port where no broker listens, so that no port is known."""


@dataclass(slots=True)
class Figures:
    """Counts for the copies of one capture."""

    copies: int = 0
    exchanges: int = 0
    known: int = 0
    """Exchanges where the ports of brokers are known."""
    swapped: int = 0
    """Connections in which the broker is the client."""
    expected: int = 0
    """Exchanges inside a copy."""
    missing: int = 0
    """Expected exchanges without a row where the ports of brokers are known."""
    skipped: int = 0
    """Bytes in which no message was recognised, where the ports of brokers are known."""

    def add(self, other: Figures) -> None:
        """Add the figures of other copies."""
        self.copies += other.copies
        self.exchanges += other.exchanges
        self.known += other.known
        self.swapped += other.swapped
        self.expected += other.expected
        self.missing += other.missing
        self.skipped += other.skipped


@dataclass(frozen=True, slots=True)
class Whole:
    """Brokers and exchanges of the whole capture."""

    brokers: frozenset[Endpoint]
    """Addresses of brokers, by the handshakes."""
    exchanges: list[tuple[Key, int, int]]
    """For each exchange without TLS, whose keys are in the handshake: key, number of its first
    packet, and time of its last byte in ns."""


def of_whole(whole: Recording) -> Whole:
    """Read a capture as it is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, whole.name.partition(".")[0])
        path.write_bytes(whole.data)
        tables = dissector.open_capture(path).tables(TABLES)
    connections = tables["connections"].to_pylist()
    brokers = frozenset(
        (row["broker_ip"], row["broker_port"]) for row in connections if row["protocol"] == "kafka"
    )
    encrypted = {row["connection_id"] for row in connections if row["tls_version"]}
    exchanges = [
        (key(row), min(row["request_packet"], row["response_packet"]), ends(row))
        for row in tables["exchanges"].to_pylist()
        if row["status"] == "answered" and row["connection_id"] not in encrypted
    ]
    return Whole(brokers, exchanges)


def key(row: dict[str, Any]) -> Key:
    """The key of an exchange."""
    return tuple(str(row[name]) for name in KEY)


def ends(row: dict[str, Any]) -> int:
    """Time of the last byte of an exchange in ns."""
    return max(row["request_end_time"].value, row["response_end_time"].value)


def late_start(whole: Recording, start: int, window: int, truth: Whole) -> Figures:
    """The figures of the copy that begins with the packet at index `start`."""
    end = min(start + window, len(whole.begin))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "late")
        path.write_bytes(whole.made_of(range(start, end)))
        tables = dissector.open_capture(path, ports=NO_BROKER).tables(TABLES)
        ports = {port for _, port in truth.brokers}
        known = dissector.open_capture(path, ports=ports).tables(["exchanges", "problems"])
    swapped = [
        row
        for row in tables["connections"].to_pylist()
        if row["protocol"] == "kafka" and (row["client_ip"], row["client_port"]) in truth.brokers
    ]
    last = max((row["last_time"].value for row in tables["connections"].to_pylist()), default=0)
    expected = Counter(each for each, first, end in truth.exchanges if first > start and end < last)
    missing = expected - Counter(key(row) for row in known["exchanges"].to_pylist())
    skipped = [row for row in known["problems"].to_pylist() if row["kind"] == "resync"]
    return Figures(
        1, len(tables["exchanges"]), len(known["exchanges"]), len(swapped), expected.total(),
        missing.total(), sum(row["bytes"] for row in skipped),
    )  # fmt: skip


def survey(path: Path, starts: Iterable[int], window: int, verbose: bool) -> Figures:
    """The figures of the copies of one capture."""
    whole, total = recording(path), Figures()
    truth = of_whole(whole)
    for start in starts:
        if start < len(whole.begin):
            figures = late_start(whole, start, window, truth)
            total.add(figures)
            if (figures.swapped or figures.missing) and verbose:
                print(f"{whole.name} from packet {start}: {figures}")
    return total


def main() -> int:
    """Exit status: 1 if a row is wrong or missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.late_start")
    parser.add_argument("captures", nargs="*", type=Path, metavar="CAPTURE")
    parser.add_argument(
        "--packets", type=int, default=200, help="largest number of packets to leave out"
    )
    parser.add_argument("--step", type=int, default=1, help="increment of that number")
    parser.add_argument("--window", type=int, default=300, help="packets of each copy")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="captures at a time")
    parser.add_argument("--verbose", action="store_true", help="show each wrong copy")
    options = parser.parse_args()
    os.nice(10)
    starts = range(1, options.packets + 1, options.step)
    work = partial(survey, starts=starts, window=options.window, verbose=options.verbose)
    total = Figures()
    paths = options.captures or recordings()
    with ProcessPoolExecutor(options.jobs) as pool:
        for path, figures in zip(paths, pool.map(work, paths), strict=True):
            print(path.name, figures)
            total.add(figures)
    print(f"all: {total}")
    return int(total.swapped + total.missing > 0)


if __name__ == "__main__":
    sys.exit(main())

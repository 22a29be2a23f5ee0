"""`python -m tests.robustness.late_start [CAPTURE...]`: captures that begin late.

The first N packets of each capture are left out, for every N up to --packets, and each copy ends
--window packets later. No port is known to be a broker's, and no row may show a broker as the
client. Then the ports of brokers are known, and each exchange that lies behind the beginning of the
copy must be there. Exit status 1 where a row is wrong or missing.
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
    """Of the copies of one capture."""

    copies: int = 0
    exchanges: int = 0
    known: int = 0
    """Exchanges where the ports of brokers are known."""
    swapped: int = 0
    """Connections in which the broker is the client."""
    expected: int = 0
    """Exchanges that lie behind the beginning of a copy."""
    missing: int = 0
    """Of these, those that are not there where the ports of brokers are known."""
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
    """Each one, the packet in which it begins, and ns when it ends."""


def of_whole(whole: Recording) -> Whole:
    """Read a capture as it is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, whole.name.partition(".")[0])
        path.write_bytes(whole.data)
        tables = dissector.open_capture(path).tables(TABLES)
    brokers = frozenset(
        (row["broker_ip"], row["broker_port"])
        for row in tables["connections"].to_pylist()
        if row["protocol"] == "kafka"
    )
    answered = [row for row in tables["exchanges"].to_pylist() if row["status"] == "answered"]
    exchanges = [
        (key(row), min(row["request_packet"], row["response_packet"]), ends(row))
        for row in answered
    ]
    return Whole(brokers, exchanges)


def key(row: dict[str, Any]) -> Key:
    """The key of an exchange."""
    return tuple(str(row[name]) for name in KEY)


def ends(row: dict[str, Any]) -> int:
    """ns when the last byte of an exchange comes."""
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
    """1 where a broker is a client."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.late_start")
    parser.add_argument("captures", nargs="*", type=Path, metavar="CAPTURE")
    parser.add_argument("--packets", type=int, default=200, help="leave out up to that many")
    parser.add_argument("--step", type=int, default=1, help="packets from one copy to the next")
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

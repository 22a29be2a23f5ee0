"""`python -m tests.robustness.late_start [CAPTURE...]`: captures that begin late.

The first N packets of each capture are left out, for every N up to --packets, and each copy ends
--window packets later. No port is known to be a broker's, and no row may show a broker as the
client. Exit status 1 where one does.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Collection, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import dissector
from tests.robustness.robustness_damage import Recording, recording, recordings

Endpoint = tuple[str, int]
TABLES = ("connections", "exchanges")
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

    def add(self, other: Figures) -> None:
        """Add the figures of other copies."""
        self.copies += other.copies
        self.exchanges += other.exchanges
        self.known += other.known
        self.swapped += other.swapped


def brokers(whole: Recording) -> frozenset[Endpoint]:
    """The endpoints where brokers listen, as the handshakes of the whole capture show."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, whole.name.partition(".")[0])
        path.write_bytes(whole.data)
        rows = dissector.open_capture(path).tables(["connections"])["connections"].to_pylist()
    return frozenset(
        (row["broker_ip"], row["broker_port"]) for row in rows if row["protocol"] == "kafka"
    )


def late_start(
    whole: Recording, start: int, window: int, listening: Collection[Endpoint]
) -> Figures:
    """The figures of the copy that begins with the packet at index `start`."""
    end = min(start + window, len(whole.begin))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "late")
        path.write_bytes(whole.made_of(range(start, end)))
        tables = dissector.open_capture(path, ports=NO_BROKER).tables(TABLES)
        ports = {port for _, port in listening}
        known = dissector.open_capture(path, ports=ports).tables(["exchanges"])
    swapped = [
        row
        for row in tables["connections"].to_pylist()
        if row["protocol"] == "kafka" and (row["client_ip"], row["client_port"]) in listening
    ]
    return Figures(1, len(tables["exchanges"]), len(known["exchanges"]), len(swapped))


def survey(path: Path, starts: Iterable[int], window: int, verbose: bool) -> Figures:
    """The figures of the copies of one capture."""
    whole, total = recording(path), Figures()
    listening = brokers(whole)
    for start in starts:
        if start < len(whole.begin):
            figures = late_start(whole, start, window, listening)
            total.add(figures)
            if figures.swapped and verbose:
                print(f"{whole.name} from packet {start}: {figures.swapped} swapped")
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
    return int(total.swapped > 0)


if __name__ == "__main__":
    sys.exit(main())

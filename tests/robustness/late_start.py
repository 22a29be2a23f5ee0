"""`python -m tests.robustness.late_start [CAPTURE...]`: captures that begin late.

A copy of a capture lacks the first N packets and ends `--window` packets later; N goes from 1 to
`--packets` in steps of `--step`. Many copies are read together (`bundles`), and twice. Without the
ports of brokers, no row may have a broker as the client. With the ports, each exchange inside the
copy must have a row. Exit status 1 if a row is wrong or missing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tests.captures.recorded import RECORDINGS
from tests.robustness.bundles import COPIES, Copies, missing
from tests.robustness.robustness_damage import Recording, recording
from tests.robustness.robustness_truth import (
    SAME,
    Counts,
    Exchange,
    capture_file,
    read,
    rows,
    truth,
)

Endpoint = tuple[str, int]
NO_BROKER = (1,)
"""A port where no broker listens, so that no port is known."""


@dataclass(slots=True)
class Figures(Counts):
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


@dataclass(frozen=True, slots=True)
class Reference:
    """Brokers and answered exchanges of the whole capture."""

    brokers: frozenset[Endpoint]
    """Addresses of brokers, by the handshakes."""
    rows: list[Exchange]
    first: NDArray[np.int64]
    """By exchange: the indices of the first and the last packet that it needs."""
    last: NDArray[np.int64]
    exchanges: pa.Table
    """The same rows, with all columns."""
    times: bool
    """Whether exchanges keep their times: no byte occurs twice, or behind later ones. A copy may
    lack the first one of two packets with the same bytes."""


def reference_of(whole: Recording) -> Reference:
    """Read a capture as it is."""
    intact = truth(whole)
    brokers = {
        (row["broker_ip"], row["broker_port"])
        for row in intact.connections
        if row["protocol"] == "kafka"
    }
    answered = [
        (index, int(needed.min()), int(needed.max()))
        for index, (row, needed) in enumerate(zip(intact.rows, intact.needed, strict=True))
        if row[SAME.index("status")] == "answered"
    ]
    index, first, last = np.array(answered, np.int64).reshape(-1, 3).T
    every_packet = np.ones(len(whole.begin), np.bool_)
    return Reference(
        frozenset(brokers), [intact.rows[each] for each in index.tolist()], first, last,
        intact.exchanges.take(index), intact.packets.go_in_order(every_packet),
    )  # fmt: skip


def _read_twice(
    whole: Recording, data: bytes, reference: Reference
) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """Tables of a file where the ports of brokers are not known, and where they are."""
    ports = {port for _, port in reference.brokers}
    with capture_file(data) as path:
        return (
            read(whole.name, path, "connections", "exchanges", ports=NO_BROKER),
            read(whole.name, path, "exchanges", "problems", ports=ports),
        )


def late_start(whole: Recording, start: int, window: int, reference: Reference) -> Figures:
    """The figures of the copy that begins with the packet at index `start`."""
    end = min(start + window, len(whole.begin))
    tables, known = _read_twice(whole, whole.made_of(range(start, end)), reference)
    swapped = [
        row
        for row in tables["connections"].to_pylist()
        if row["protocol"] == "kafka"
        and (row["client_ip"], row["client_port"]) in reference.brokers
    ]
    columns = slice(None if reference.times else SAME.index("request_time"))
    inside = np.flatnonzero((start <= reference.first) & (reference.last < end))
    expected = Counter(reference.rows[each][columns] for each in inside.tolist())
    missing = expected - Counter(row[columns] for row in rows(known["exchanges"]))
    skipped = [row for row in known["problems"].to_pylist() if row["kind"] == "resync"]
    return Figures(
        1, len(tables["exchanges"]), len(known["exchanges"]), len(swapped), expected.total(),
        missing.total(), sum(row["bytes"] for row in skipped),
    )  # fmt: skip


def bundled(
    whole: Recording, starts: Sequence[int], window: int, reference: Reference, copies: Copies
) -> tuple[Figures, list[int]]:
    """The figures of copies that begin at `starts`, and those with a wrong or missing row."""
    ends = [min(start + window, len(whole.begin)) for start in starts]
    bodies = [
        copies.copy(number)[whole.begin[start] : whole.end[end - 1]]
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    tables, known = _read_twice(whole, copies.bundle(bodies), reference)
    swapped = [
        number
        for row in tables["connections"].to_pylist()
        if row["protocol"] == "kafka"
        for number, client in [copies.origin(row["client_ip"])]
        if (client, row["client_port"]) in reference.brokers
    ]
    _, *intact = copies.digests(reference.exchanges)
    number, *digests = copies.digests(known["exchanges"])
    figures, wrong = Figures(swapped=len(swapped)), set(swapped)
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        is_inside = (start <= reference.first) & (reference.last < end)
        inside = intact[reference.times][is_inside]
        lost = missing(inside, digests[reference.times][number == index])
        figures.add(Figures(1, expected=len(inside), missing=lost))
        wrong |= {index} if lost else set()
    figures.exchanges, figures.known = len(tables["exchanges"]), len(known["exchanges"])
    skipped = pc.equal(known["problems"]["kind"], "resync")
    figures.skipped = pc.sum(known["problems"].filter(skipped)["bytes"], min_count=0).as_py()
    return figures, [starts[index] for index in sorted(wrong)]


def survey(path: Path, starts: Iterable[int], window: int, verbose: bool) -> Figures:
    """The figures of the copies of one capture."""
    whole, total = recording(path), Figures()
    reference = reference_of(whole)
    alone = [start for start in starts if start < len(whole.begin)]
    if len(alone) > 1:
        with suppress(ValueError):
            copies, together, alone = Copies(whole), alone, []
            for begin in range(0, len(together), COPIES):
                figures, wrong = bundled(
                    whole, together[begin : begin + COPIES], window, reference, copies
                )
                total.add(figures)
                for start in wrong if verbose else ():
                    print(f"{whole.name} from packet {start}, bundled")
                    print("  alone:", late_start(whole, start, window, reference))
    for start in alone:
        figures = late_start(whole, start, window, reference)
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
    paths = options.captures or RECORDINGS
    with ProcessPoolExecutor(options.jobs) as pool:
        for path, figures in zip(paths, pool.map(work, paths), strict=True):
            print(path.name, figures)
            total.add(figures)
    print(f"all: {total}")
    return int(total.swapped + total.missing > 0)


if __name__ == "__main__":
    sys.exit(main())

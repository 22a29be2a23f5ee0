"""`python -m tests.robustness [CAPTURE...]`: damage every committed capture, and look what is left.

Every exchange that a damage did not touch must still be there, as it was. A few places in each
capture are damaged, one at a time; more with --places, all of them with --exhaustive. Exit status 1
where more are missing than `TOLERATED`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.robustness.robustness_damage import KINDS, Recording, damaged, recording, recordings
from tests.robustness.robustness_truth import truth

TOLERATED = {"lost": 0.0001, "flipped": 0.001}
"""Share of untouched exchanges that may be missing. The last response of a connection, behind lost
bytes and alone, may not look enough like one (`CERTAINTY` in dissector/streams/limits.py). A byte
of the headers of IP and TCP may move a packet's bytes over those of its neighbours: then no one can
tell which of them are right."""


@dataclass(slots=True)
class Figures:
    """Of one kind of damage."""

    copies: int = 0
    untouched: int = 0
    """Exchanges of all copies that were not touched."""
    missing: int = 0
    """Of these, how many are not there."""

    def add(self, other: Figures) -> None:
        """Count those of another capture in."""
        self.copies += other.copies
        self.untouched += other.untouched
        self.missing += other.missing


def survey(
    whole: Recording, places: int | None, shift: int = 0, *, verbose: bool = False
) -> dict[str, Figures]:
    """What damage of each kind leaves of a recording."""
    said = truth(whole)
    figures: dict[str, Figures] = defaultdict(Figures)
    for kind in KINDS:
        for damage in damaged(whole, kind, places, shift):
            expected = said.untouched(damage)
            missing = expected - said.found(damage)
            figures[kind].add(Figures(1, expected.total(), missing.total()))
            if missing and verbose:
                print(f"{whole.name} {kind} {damage.where}: {missing.total()} missing")
                for row in list(missing)[:3]:
                    print("   ", row)
    return figures


def table(figures: dict[str, Figures]) -> str:
    """A line for each kind of damage."""
    lines = [f"{'damage':10}{'copies':>10}{'untouched':>14}{'missing':>10}{'kept':>12}"]
    for kind, each in figures.items():
        kept = 1 - each.missing / each.untouched if each.untouched else 1
        lines.append(
            f"{kind:10}{each.copies:>10,}{each.untouched:>14,}{each.missing:>10,}{kept:>12.4%}"
        )
    return "\n".join(lines)


def main() -> int:
    """1 where too many exchanges are missing that no damage touched."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness", description=__doc__)
    parser.add_argument("captures", nargs="*", type=Path, metavar="CAPTURE")
    parser.add_argument("--places", type=int, default=10, help="of each kind in each capture")
    parser.add_argument("--shift", type=int, default=0, help="other places")
    parser.add_argument("--exhaustive", action="store_true", help="every place; takes hours")
    parser.add_argument("--verbose", action="store_true", help="say what is missing")
    options = parser.parse_args()
    os.nice(10)
    places = None if options.exhaustive else options.places
    total: dict[str, Figures] = defaultdict(Figures)
    for path in options.captures or recordings():
        for kind, each in survey(
            recording(path), places, options.shift, verbose=options.verbose
        ).items():
            total[kind].add(each)
    print(f"{len(options.captures or recordings())} captures; untouched: exchanges of all copies\n")
    print(table(total))
    return int(
        any(each.missing > TOLERATED.get(kind, 0) * each.untouched for kind, each in total.items())
    )


if __name__ == "__main__":
    sys.exit(main())

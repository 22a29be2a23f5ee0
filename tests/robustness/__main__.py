"""`python -m tests.robustness [CAPTURE...]`: damage each committed capture, and check its rows.

Each copy of a capture is damaged in one place. Exchanges outside of this place must have the same
rows as before. `--places` sets the number of copies. `--exhaustive` damages all places, the
smallest captures first, many copies in one capture (`bundles`). `--seconds` limits the time. Exit
status 1 if an exchange is missing.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.captures.recorded import RECORDINGS
from tests.robustness.bundled_survey import BundledSurvey, can_bundle
from tests.robustness.robustness_damage import KINDS, Recording, places_in, places_of, recording
from tests.robustness.robustness_truth import Counts, Truth, truth


@dataclass(slots=True)
class Figures(Counts):
    """Counts for one kind of damage."""

    copies: int = 0
    places: int = 0
    """Places where a copy can be damaged."""
    untouched: int = 0
    """Exchanges of all copies outside of the damage."""
    missing: int = 0
    """Untouched exchanges without a row."""


def survey(
    whole: Recording, places: int | None, shift: int = 0, *, until: float = math.inf,
    verbose: bool = False,
) -> dict[str, Figures]:  # fmt: skip
    """Missing exchanges of damaged copies, by kind of damage; stop at the time `until`."""
    intact = truth(whole)
    figures = {kind: Figures(places=places_of(whole, kind)) for kind in KINDS}
    bundled = None
    if places is None:
        with suppress(ValueError):
            bundled = BundledSurvey(whole, intact)
    for kind in KINDS:
        alone = list(places_in(whole, kind, places, shift))
        if bundled is not None:
            together = [where for where in alone if can_bundle(whole, kind, where)]
            alone = [where for where in alone if not can_bundle(whole, kind, where)]
            for where, untouched, missing in bundled.missing(kind, together):
                figures[kind].add(Figures(1, 0, untouched, missing))
                if missing:
                    print(f"{whole.name} {kind} {where}: {missing} missing, bundled", flush=True)
                    _alone(whole, intact, kind, where, verbose)
                if time.monotonic() > until:
                    return figures
        for where in alone:
            if time.monotonic() > until:
                return figures
            figures[kind].add(_alone(whole, intact, kind, where, verbose))
    return figures


def _alone(whole: Recording, intact: Truth, kind: str, where: int, verbose: bool) -> Figures:
    """The figures of one copy."""
    damage = KINDS[kind][0](whole, where)
    expected = intact.untouched(damage)
    try:
        missing = expected - intact.remaining(damage)
    except Exception as error:  # noqa: BLE001 - the other copies are still read
        print(f"{whole.name} {kind} {where}: {error!r}", flush=True)
        missing = expected
    if missing and verbose:
        print(f"{whole.name} {kind} {where}: {missing.total()} missing", flush=True)
        for row in list(missing)[:3]:
            print("   ", row)
    return Figures(1, 0, expected.total(), missing.total())


def survey_of(
    path: Path, places: int | None, shift: int, until: float, verbose: bool
) -> tuple[dict[str, Figures], bool]:
    """The figures of a file, and whether all its copies were read in time."""
    figures = survey(recording(path), places, shift, until=until, verbose=verbose)
    return figures, time.monotonic() < until


def table(figures: dict[str, Figures]) -> str:
    """A line for each kind of damage."""
    lines = [f"{'damage':10}{'copies':>10}{'places':>12}{'untouched':>14}{'missing':>10}"]
    for kind, each in figures.items():
        lines.append(
            f"{kind:10}{each.copies:>10,}{each.places:>12,}{each.untouched:>14,}{each.missing:>10,}"
        )
    return "\n".join(lines)


def main() -> int:
    """Exit status: 1 if an untouched exchange is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.robustness", description=__doc__)
    parser.add_argument("captures", nargs="*", type=Path, metavar="CAPTURE")
    parser.add_argument(
        "--places", type=int, default=10, help="copies per kind of damage and capture"
    )
    parser.add_argument("--shift", type=int, default=0, help="damage other places")
    parser.add_argument(
        "--exhaustive", action="store_true", help="damage all places; about an hour"
    )
    parser.add_argument("--seconds", type=int, default=None, help="time limit")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="captures read at a time")
    parser.add_argument("--verbose", action="store_true", help="print missing exchanges")
    options = parser.parse_args()
    os.nice(10)
    places = None if options.exhaustive else options.places
    until = math.inf if options.seconds is None else time.monotonic() + options.seconds
    paths = [*(options.captures or RECORDINGS)]
    if options.exhaustive:
        paths.sort(key=lambda path: len(recording(path).begin))
    work = partial(
        survey_of, places=places, shift=options.shift, until=until, verbose=options.verbose
    )
    total: dict[str, Figures] = defaultdict(Figures)
    done = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for path, (figures, is_done) in zip(paths, pool.map(work, paths), strict=True):
            for kind, each in figures.items():
                total[kind].add(each)
            done += is_done
            missing = sum(each.missing for each in figures.values())
            copies = sum(each.copies for each in figures.values())
            print(f"{path.name}: {copies:,} copies, {missing:,} missing", flush=True)
    print(f"{done} of {len(paths)} captures; untouched: exchanges of all copies\n")
    print(table(total))
    return int(any(each.missing for each in total.values()))


if __name__ == "__main__":
    sys.exit(main())

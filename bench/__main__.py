"""`python -m bench`: make the inputs, run all programs, print the results."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from bench import report, suite
from bench.suite import HERE, Options, Results

SECTIONS = {
    **{load: partial(suite.compare, load=load) for load in suite.SIZES},
    "tables": suite.tables,
    "answers": suite.answers,
    "sizes": suite.sizes,
    "start": suite.start,
    **{name: partial(suite.inside, name=name) for name in suite.INSIDE},
}


def show_progress(text: str) -> None:
    """Show progress, only on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def main() -> None:
    """Measure the project and its peers, and write bench/RESULTS.md."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=main.__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a fifth of the size, two rounds, only whole processes; keep RESULTS.md",
    )
    parser.add_argument("--scale", type=float, help="size of the inputs, 1 is 1 GB of bulk")
    parser.add_argument("--rounds", type=int, help="number of runs of each program")
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, help="only these sections; keep RESULTS.md"
    )
    arguments = parser.parse_args()
    scale, rounds = (0.2, 2) if arguments.quick else (1.0, 5)
    options = Options(arguments.scale or scale, arguments.rounds or rounds, show_progress)
    results = Results()
    for name, measure in SECTIONS.items():
        if name in (arguments.only or SECTIONS) and not (arguments.quick and name in suite.INSIDE):
            measure(options, results)
    show_progress("")
    page = report.text(results)
    print(page, end="")
    if not arguments.quick and not arguments.only and options.scale >= 1:
        (HERE / "RESULTS.md").write_text(page)


if __name__ == "__main__":
    main()

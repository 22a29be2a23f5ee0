"""`python -m tests.rewriting`: recordings with a new, random TCP layer.

No byte of a stream is missing, so the rows must be those of the recording. Exit status 1 if they
differ. With `--runs`, the files are cut into runs, whose rows must be those of one process.

flows      the byte streams of a recording, read with dpkt
network    the packets of a network: segments, acknowledgements, disorder, fragments, tunnels
cases      one random case: a recording, its options, its files, and the comparison of rows
runs       one random case that is cut into runs; with `--runs`

`test_rewriting_plain.py` checks the tool: it sends each byte, and without changes the rows stay the
same. `test_rewriting_random.py` is a short run.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.rewriting.cases import BLOCKS, Case, run
from tests.rewriting.runs import RunsCase, run_cut


def run_in_folder(seed: int, blocks: str, name: str | None) -> Case:
    """Run a case in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return run(seed, Path(folder), blocks=blocks, name=name)


def run_cut_in_folder(seed: int) -> RunsCase:
    """Run a case of runs in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return run_cut(seed, Path(folder))


def main() -> int:
    """Exit status: 1 if a case lost or forged a row."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.rewriting",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="of the first case; default: random")
    parser.add_argument("--blocks", choices=BLOCKS, default="default")
    parser.add_argument("--capture", help="name of a recording; default: any")
    parser.add_argument(
        "--runs", action="store_true", help="cut the files into runs; draw blocks and recordings"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    os.nice(10)
    first = random.SystemRandom().getrandbits(40) if options.seed is None else options.seed
    seeds = range(first, first + options.cases)
    if options.runs:
        return _compare_runs(seeds, options.jobs)
    work = partial(run_in_folder, blocks=options.blocks, name=options.capture)
    wrong = expected = lost = false = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for case in pool.map(work, seeds):
            expected += case.expected
            lost += case.lost.total()
            false += case.false.total()
            wrong += not case.is_equal
            if not case.is_equal:
                print(case, flush=True)
    print(
        f"{options.cases} cases from seed {first}, {options.blocks} blocks: {expected:,} "
        f"rows; {wrong} cases wrong, {lost} lost, {false} false"
    )
    return int(wrong > 0)


def _compare_runs(seeds: range, jobs: int) -> int:
    wrong = 0
    with ProcessPoolExecutor(jobs) as pool:
        for case in pool.map(run_cut_in_folder, seeds):
            wrong += bool(case.different)
            if case.different:
                print(case, flush=True)
    print(f"{len(seeds)} cases of runs from seed {seeds[0]}: {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

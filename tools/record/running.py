"""The command line of the recorders: runs scenarios, one after the other."""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable, Mapping


def main(program: str, scenarios: Mapping[str, Callable[[], None]]) -> int:
    """Record the scenarios named on the command line. Exit status: 1 if one failed."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument(
        "scenario", nargs="+", choices=[*scenarios, "all"], metavar="SCENARIO",
        help=f"all, or of these: {', '.join(scenarios)}",
    )  # fmt: skip
    names = parser.parse_args().scenario
    failed = 0
    for name in scenarios if "all" in names else names:
        # One process each: a recording moves its process into a new network permanently.
        process = multiprocessing.get_context("fork").Process(target=scenarios[name])
        process.start()
        process.join()
        failed += process.exitcode != 0
    return int(failed > 0)

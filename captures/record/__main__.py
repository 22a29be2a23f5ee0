"""python -m captures.record SCENARIO...: record, one after the other."""

from __future__ import annotations

import argparse
import multiprocessing
import sys

from captures.record.scenarios import SCENARIOS, mock, repeated, tansu

MODULES = (mock, repeated, tansu)
"""Importing them fills SCENARIOS."""


def main() -> int:
    """Record the scenarios that were named; 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m captures.record")
    parser.add_argument("scenario", nargs="+", choices=[*SCENARIOS, "all"])
    names = parser.parse_args().scenario
    failed = 0
    for name in SCENARIOS if "all" in names else names:
        # A process each: a recording moves its process into a network of its own for good.
        process = multiprocessing.get_context("fork").Process(target=SCENARIOS[name])
        process.start()
        process.join()
        failed += process.exitcode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

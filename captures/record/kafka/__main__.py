"""python -m captures.record.kafka SCENARIO...: record, one after the other."""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import pkgutil
import sys

from captures.record.kafka import scenarios


def main() -> int:
    """Record the scenarios that were named; 1 where one failed."""
    for module in pkgutil.iter_modules(scenarios.__path__):
        importlib.import_module(f"{scenarios.__name__}.{module.name}")
    parser = argparse.ArgumentParser(prog="python -m captures.record.kafka")
    parser.add_argument("scenario", nargs="*", help="its name, or all")
    parser.add_argument("--list", action="store_true", help="name the scenarios, and record none")
    given = parser.parse_args()
    names = list(scenarios.SCENARIOS) if "all" in given.scenario else given.scenario
    if unknown := [name for name in names if name not in scenarios.SCENARIOS]:
        parser.error(f"no scenario is called {', '.join(unknown)}: --list names them")
    if given.list:
        print(*scenarios.SCENARIOS, sep="\n")
        return 0
    failed = 0
    for name in names:
        # A process each: a recording moves its process into a network of its own for good.
        process = multiprocessing.get_context("spawn").Process(target=scenarios.SCENARIOS[name])
        process.start()
        process.join()
        failed += process.exitcode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

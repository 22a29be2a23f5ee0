"""One target in this process: `python -m tests.fuzz.fuzz_one TARGET ENGINE [options]`.

Two engines take the same options and say the same at the end, libFuzzer's: `atheris` is guided by
which lines an input reaches, and slow; `plain` is not guided, several times as fast, and its
inputs are the same again for the same -seed.
"""

from __future__ import annotations

import hashlib
import os
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from tests.fuzz.fuzz_mutations import mutated

SIGNS_OF_LIFE = 10_000


def guided(name: str, arguments: list[str]) -> NoReturn:
    """By atheris; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["dissector"]):
        from tests.fuzz.fuzz_targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name].run)
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process")


def plain(name: str, arguments: list[str]) -> NoReturn:
    """By `mutated`."""
    from tests.fuzz.fuzz_targets import TARGETS

    options = dict(each[1:].split("=", 1) for each in arguments[:-1])
    seeds = [path.read_bytes() for path in sorted(Path(arguments[-1]).iterdir())]
    target = TARGETS[name]
    limit = int(options["rss_limit_mb"])
    chance = random.Random(int(options.get("seed", 1)))
    until = time.monotonic() + int(options["max_total_time"])
    done = 0
    while done < int(options["runs"]) and time.monotonic() < until:
        data = mutated(chance.choice(seeds), seeds, chance)[: target.longest]
        signal.alarm(int(options["timeout"]))  # no handler: a hang ends the process
        kept = Path(options["artifact_prefix"] + "last")
        kept.write_bytes(data)
        try:
            target.run(data)
        except Exception:  # noqa: BLE001 - whatever is raised is a finding
            traceback.print_exc()
            digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
            kept.rename(options["artifact_prefix"] + f"crash-{digest}")
            break
        done += 1
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        if used > limit:
            print(f"ERROR: {used} MB", file=sys.stderr)
            break
        if done % SIGNS_OF_LIFE == 0:
            print(f"#{done} rss: {used}Mb", file=sys.stderr, flush=True)
    else:
        kept.unlink(missing_ok=True)
    print(f"#{done} DONE rss: {used}Mb", file=sys.stderr, flush=True)
    sys.exit()


if __name__ == "__main__":
    ENGINES = {"atheris": guided, "plain": plain}
    os.nice(10)
    ENGINES[sys.argv[2]](sys.argv[1], sys.argv[3:])

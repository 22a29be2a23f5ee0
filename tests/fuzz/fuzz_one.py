"""One target in this process: `python -m tests.fuzz.fuzz_one TARGET ENGINE [options]`.

Two engines take the same options and say the same at the end, libFuzzer's: `atheris` is guided by
which lines an input reaches, and slow; `plain` is not guided, several times as fast, and its
inputs are the same again for the same -seed.
"""

from __future__ import annotations

import mmap
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
LAST = "last"
"""Ends the name of the file that is left where the last input was a finding; see `Kept`."""
_LENGTH = 4
"""Bytes before the input in such a file: its length."""


def guided(name: str, arguments: list[str]) -> NoReturn:
    """By atheris; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["dissector"]):
        from tests.fuzz.fuzz_targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name].run)
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process")


class Kept:
    """The input that runs, in a file that outlives this process: a hang or a fault ends that.

    The file is mapped, since writing one for each input takes as long as many inputs do.
    """

    def __init__(self, path: Path, longest: int) -> None:
        path.write_bytes(bytes(_LENGTH + longest))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def keep(self, data: bytes) -> None:
        self._memory[: _LENGTH + len(data)] = len(data).to_bytes(_LENGTH) + data

    @staticmethod
    def read(path: Path) -> bytes:
        """The input that was kept last."""
        data = path.read_bytes()
        return data[_LENGTH : _LENGTH + int.from_bytes(data[:_LENGTH])]


def plain(name: str, arguments: list[str]) -> NoReturn:
    """By `mutated`."""
    from tests.fuzz.fuzz_targets import TARGETS

    options = dict(each[1:].split("=", 1) for each in arguments[:-1])
    seeds = [path.read_bytes() for path in sorted(Path(arguments[-1]).iterdir())]
    target = TARGETS[name]
    limit = int(options["rss_limit_mb"])
    chance = random.Random(int(options.get("seed", 1)))
    until = time.monotonic() + int(options["max_total_time"])
    path = Path(options["artifact_prefix"] + LAST)
    kept = Kept(path, target.longest)
    done = used = 0
    while done < int(options["runs"]) and time.monotonic() < until:
        data = mutated(chance.choice(seeds), seeds, chance)[: target.longest]
        signal.alarm(int(options["timeout"]))  # no handler: a hang ends the process
        kept.keep(data)
        try:
            target.run(data)
        except Exception:  # noqa: BLE001 - whatever is raised is a finding
            traceback.print_exc()
            break
        done += 1
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        if used > limit:
            print(f"ERROR: {used} MB", file=sys.stderr)
            break
        if done % SIGNS_OF_LIFE == 0:
            print(f"#{done} rss: {used}Mb", file=sys.stderr, flush=True)
    else:
        path.unlink()
    print(f"#{done} DONE rss: {used}Mb", file=sys.stderr, flush=True)
    sys.exit()


if __name__ == "__main__":
    ENGINES = {"atheris": guided, "plain": plain}
    os.nice(10)
    ENGINES[sys.argv[2]](sys.argv[1], sys.argv[3:])

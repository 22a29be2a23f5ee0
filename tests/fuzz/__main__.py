"""`python -m tests.fuzz [TARGET...]`: fuzz, seeded from the committed captures.

Each target runs in its own process, up to a number of inputs or a time, or until a finding: an
exception that the project does not define, an input that takes seconds, or unbounded memory. A
finding is a file in build/fuzz; move it to tests/fuzz/findings with the repair. The corpus of each
target stays in build/fuzz, and the next run continues with it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.fuzz_one import LAST, Kept
from tests.fuzz.fuzz_targets import TARGETS, Target

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "fuzz"
ENGINE = "atheris" if importlib.util.find_spec("atheris") else "plain"
"""The guided one, where it is installed; see `fuzz_one`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one target; a finding ends it earlier."""

    engine: str
    seed: int
    runs: int
    seconds: int
    input_seconds: int
    megabytes: int


def corpus(target: Target) -> Path:
    """The folder of a target's inputs, with its seeds in it."""
    folder = FOLDER / target.name
    if not folder.exists():
        folder.mkdir(parents=True)
        for seed in target.seeds(False):
            name = hashlib.sha1(seed, usedforsecurity=False).hexdigest()
            (folder / name).write_bytes(seed[: target.longest])
    return folder


def findings(target: Target) -> set[Path]:
    """The inputs that showed something."""
    return set(FOLDER.glob(f"{target.name}-*"))


def rescue(path: Path) -> None:
    """The input that ended a process becomes a finding."""
    if path.exists():
        data = Kept.read(path)
        name = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        path.with_name(path.name.replace(LAST, f"crash-{name}")).write_bytes(data)
        path.unlink()


def fuzz(target: Target, limits: Limits) -> tuple[str, int]:
    """A row about the target, and how many findings there were."""
    inputs = corpus(target)
    log = FOLDER / f"{target.name}.log"
    before = findings(target)
    command = [
        sys.executable, "-m", "tests.fuzz.fuzz_one", target.name, limits.engine,
        f"-seed={limits.seed}",
        f"-runs={limits.runs}",
        f"-max_total_time={limits.seconds}",
        f"-timeout={limits.input_seconds}",
        f"-rss_limit_mb={limits.megabytes}",
        f"-max_len={target.longest}",
        f"-artifact_prefix={FOLDER}/{target.name}-",
        "-print_final_stats=1",
        str(inputs),
    ]  # fmt: skip
    begin = time.monotonic()
    with log.open("wb") as out:
        subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, check=False)
    taken = time.monotonic() - begin
    rescue(FOLDER / f"{target.name}-{LAST}")
    output = log.read_text(errors="replace")
    new_findings = findings(target) - before
    runs = max(map(int, re.findall(r"^#(\d+)\s", output, re.M)), default=0)
    memory = max(map(int, re.findall(r"rss: (\d+)Mb", output)), default=0)
    row = (
        f"{target.name:9} {target.what:20} {runs:>12,} {taken:>8,.0f} s {memory:>8,} MB "
        f"{len(new_findings):>9}"
    )
    return row, len(new_findings)


def main() -> int:
    """1 where there are findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--engine", choices=("atheris", "plain"), default=ENGINE)
    parser.add_argument("--seed", type=int, default=1, help="another one makes other inputs")
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs for each target")
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--input-seconds", type=int, default=20, help="for one input")
    parser.add_argument("--memory", type=int, default=2_048, help="MB of one process")
    options = parser.parse_args()
    limits = Limits(
        options.engine,
        options.seed,
        options.runs,
        options.seconds,
        options.input_seconds,
        options.memory,
    )
    print(f"{'target':9} {'what':20} {'inputs':>12} {'time':>10} {'memory':>11} {'findings':>9}")
    total = 0
    for name in options.targets or TARGETS:
        if name not in TARGETS:
            parser.error(f"there is no target {name!r}")
        row, findings_count = fuzz(TARGETS[name], limits)
        print(row, flush=True)
        total += findings_count
    if total:
        print(f"\nthe output of each finding is in {FOLDER.relative_to(ROOT)}/TARGET.log")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())

"""Calls of the compiled loops, with arguments that no code of this project would pass.

A loop checks every position against the length of its arrays, so that no argument makes it read or
write outside. The arguments are made from the loop's declaration: arrays of the declared types,
mostly of the same length, with numbers at the edges of ranges. Some arrays have another type or
shape, are not aligned, cannot be written, or are passed twice. `sanitized` compiles the loops with
`-fsanitize=address,undefined`, which ends the process at the first access outside of an array.

`python -m tests.fuzz.fuzz_kernel CALLS SEED`: that many calls of each loop.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from dissector import kernel

ROOT = Path(__file__).parents[2]
SANITIZED = "KAFKA_DISSECTOR_SANITIZED_LOOPS"
"""The environment variable with the path of loops to call in place of the installed ones."""

_TYPES = {
    "Int64": np.int64,
    "UInt8": np.uint8,
    "UInt64": np.uint64,
    "NDArray[np.bool_]": np.bool_,
    "NDArray[np.uint16]": np.uint16,
    "NDArray[np.uint32]": np.uint32,
    "NDArray[np.uint64]": np.uint64,
    "NDArray[np.int32]": np.int32,
    "NDArray[np.generic]": np.int64,
}
_TABLES = {"ethertypes": 1 << 16, "protocols": 1 << 8, "families": 1 << 8, "key": 2}
_MOST = (1 << 63) - 1
_EDGES = (0, -1, _MOST, _MOST - 30, -_MOST - 1, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 62)
_ITEMS = 40
_NODE = 10
"""Numbers of a node of a program for `walk_bodies`."""


@cache
def loops() -> dict[str, list[tuple[str, str]]]:
    """Name and type of each argument of each loop."""
    text = (ROOT / "dissector" / "kernel" / "loops.pyi").read_text()
    return {
        each.name: [(arg.arg, ast.unparse(arg.annotation or arg)) for arg in each.args.args]
        for each in ast.parse(text).body
        if isinstance(each, ast.FunctionDef)
    }


def call(data: bytes) -> None:
    """One call of one loop. The first bytes of `data` choose the loop and its arguments."""
    if not kernel.COMPILED:
        return
    chance = random.Random(data[:8])
    name = chance.choice(list(loops()))
    call_loop(getattr(kernel.loops, name), name, data[8:], chance)


def call_loop(loop: Callable[..., Any], name: str, data: bytes, chance: random.Random) -> bool:
    """One call of this loop; False where it refused its arguments."""
    items = chance.randrange(_ITEMS)
    values = [_value(argument, kind, data, items, chance) for argument, kind in loops()[name]]
    is_hostile = chance.random() < 0.3
    if is_hostile:
        _spoil(values, chance)
    try:
        loop(*values)
    except (ValueError, OverflowError, MemoryError):
        return False
    except TypeError:
        if not is_hostile:
            raise
        return False
    return True


def _value(name: str, kind: str, data: bytes, items: int, chance: random.Random) -> Any:
    if kind == "Bytes":
        return np.frombuffer(data, np.uint8).copy()
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "int":
        return _number(len(data), chance) if chance.random() < 0.3 else chance.randrange(9)
    if chance.random() < 0.03:
        items = chance.randrange(_ITEMS)
    if name == "nodes":
        return _program(chance)
    size = _TABLES.get(name, items)
    if kind == "UInt8":
        return np.frombuffer(chance.randbytes(size), np.uint8) % 20
    if kind == "Int64":
        most = min(len(data), 7) if name == "length" else max(len(data) - 7, 0)
        return np.array([_number(most, chance) for _ in range(items)], np.int64)
    factor = 1 if name in _TABLES or name.startswith(("src", "dst")) else 2
    return np.frombuffer(chance.randbytes(factor * size), np.uint8).astype(_TYPES[kind])


def _program(chance: random.Random) -> Any:
    """Nodes that are mostly a program: each struct and array has its children behind it."""
    nodes = chance.randrange(1, 12) if chance.random() < 0.9 else 2_000
    rows = []
    free = 1
    for index in range(nodes):
        kind = 3 if index == 0 else chance.choice([0, 0, 1, 2, 3, 4])
        count = min(1 if kind == 4 or nodes > 12 else chance.randrange(4), nodes - free)
        children = [free, count] if kind >= 3 else [0, 0]
        free += children[1]
        level = chance.randrange(-1, 3) if kind == 4 else -1
        column = chance.randrange(-1, 4) if kind < 3 else -1
        width, tag = chance.choice([1, 2, 4, 8, 16]), chance.choice([-1, -1, -1, 0, 1])
        rows.append([kind, width, 1, chance.randrange(2), tag, column, -1, level, *children])
    program = np.array(rows, np.int32)
    if chance.random() < 0.2:
        program[chance.randrange(nodes), chance.randrange(_NODE)] = chance.randrange(-2, 40)
    return program


def _spoil(values: list[Any], chance: random.Random) -> None:
    """Change an argument to what no caller should pass."""
    at = chance.randrange(len(values))
    value = values[at]
    if not isinstance(value, np.ndarray):
        values[at] = chance.choice([*_EDGES, -_MOST, 1 << 64, "text", None])
        return
    arrays = [each for each in values if isinstance(each, np.ndarray)]
    unaligned = np.zeros(value.nbytes + 1, np.uint8)[1:].view(value.dtype)
    unaligned[:] = value.reshape(-1)
    frozen = value.copy()
    frozen.flags.writeable = False
    values[at] = chance.choice(
        [
            unaligned, unaligned, unaligned, frozen, value[::2], value[:-1], value[:0],
            value.astype(np.float64), value.astype(value.dtype.newbyteorder(">")),
            value.astype(np.uint8), value.astype(object), value.tobytes(), chance.choice(arrays),
            chance.choice(arrays)[1:], 7, None,
        ]
    )  # fmt: skip


def _number(size: int, chance: random.Random) -> int:
    """A position or a length: mostly inside, else at an edge."""
    if chance.random() < 0.99:
        return chance.randrange(size + 1)
    return chance.choice((*_EDGES, size - 1, size, size + 1))


# Loops with sanitizers


SOURCES = ROOT / "dissector" / "kernel"


def compiled(folder: Path, sources: Path = SOURCES) -> Path | None:
    """The loops, compiled with the address and undefined behaviour sanitizers.

    None where the compiler or one of the sanitizers is missing.
    """
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    target = folder / "loops.abi3.so"
    run = subprocess.run(
        [
            compiler, "-shared", "-fPIC", "-O1", "-g", "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all", f"-I{sysconfig.get_paths()['include']}",
            *map(str, sorted(sources.glob("*.c"))), "-o", str(target),
        ],
        capture_output=True, check=False,
    )  # fmt: skip
    return target if run.returncode == 0 and _runtime() else None


def _runtime() -> str | None:
    """The library of the address sanitizer, which must be loaded before Python itself."""
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return library if Path(library).is_absolute() else None


def sanitized(target: Path, calls: int, seed: int) -> subprocess.CompletedProcess[str]:
    """A process that calls each of these loops; it fails at the first error."""
    options = {
        "LD_PRELOAD": _runtime() or "",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2048",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        SANITIZED: str(target),
    }
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.fuzz_kernel", str(calls), str(seed)],
        env=os.environ | options, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def _chosen() -> Any:
    """The loops to call: those of the environment variable, else the installed ones."""
    path = os.environ.get(SANITIZED)
    if not path:
        return kernel.loops
    name = "dissector.kernel.loops"
    spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(calls: int, seed: int) -> None:
    """Call each loop that often; print how many calls it accepted."""
    module = _chosen()
    for name in loops():
        chance = random.Random(f"{name} {seed}")
        outcomes = Counter(
            call_loop(getattr(module, name), name, chance.randbytes(chance.randrange(300)), chance)
            for _ in range(calls)
        )
        print(f"{name:14} {calls:>9,} calls, {outcomes[True]:>9,} accepted", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

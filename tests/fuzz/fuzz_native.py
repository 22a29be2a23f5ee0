"""Calls of the loops, with arguments that no code of this project would pass.

Each index into an array is checked, so that no argument makes a loop read or write outside. The
arguments are made from the loop's declaration: arrays of the declared types, mostly of the same
length, with numbers at the edges of ranges. Some arrays have another type or shape, cannot be
written, or are passed twice.

`python -m tests.fuzz.fuzz_native CALLS SEED` calls each loop that many times: CALLS_PER_ARGUMENTS
times with the same arguments, in which one number changes before each call. With a third argument,
the loops are those in that folder. `compiled` builds them with `-fsanitize=address,undefined`: the
process ends at the first access outside of an array. `sanitized` runs them.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from dissector import _native

ROOT = Path(__file__).parents[2]
LOOPS = ROOT / "dissector" / "_native"

_TYPES = {
    "Int64": np.int64,
    "UInt64": np.uint64,
    "UInt16": np.uint16,
    "Bools": np.bool_,
    "NDArray[np.int32]": np.int32,
    "Numbers": np.int32,
    "NDArray[np.uint32]": np.uint32,
}
_TABLES = [1 << 16, 1 << 8, 1 << 8, 72, 72]
_COLUMNS = [
    "u1",
    "i8",
    "i8",
    "i8",
    "u8",
    "u8",
    "u8",
    "u8",
    "u2",
    "u2",
    "u4",
    "u4",
    "u1",
    "u2",
    "i8",
    "i4",
    "i4",
]
"""Those of `headers.Packets`."""
_MOST = (1 << 63) - 1
_EDGES = (0, -1, _MOST, _MOST - 30, -_MOST - 1, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 62)
_ITEMS = 40
_SORTED = (
    "address", "position", "length", "rows", "first", "slot", "chosen", "connection",
    "answered_connection", "message",
)  # fmt: skip
"""Arguments that ascend, below the number of items."""
CALLS_PER_ARGUMENTS = 20
"""New arguments take much more time than a call."""
_NODE = 10
"""Numbers of a node of a program for `walk_bodies`."""


@cache
def loops() -> dict[str, list[tuple[str, str]]]:
    """Name and type of each argument of each loop."""
    names = {name for functions in _native.FUNCTIONS.values() for name in functions}
    return {
        each.name: [(arg.arg, ast.unparse(arg.annotation or arg)) for arg in each.args.args]
        for each in ast.parse((LOOPS / "__init__.pyi").read_text()).body
        if isinstance(each, ast.FunctionDef) and each.name in names
    }


def call(data: bytes) -> None:
    """One call of one loop. The first bytes of `data` choose the loop and its arguments."""
    chance = random.Random(data[:8])
    name = chance.choice(list(loops()))
    call_loop(getattr(_native, name), name, data[8:], chance)


def call_loop(
    loop: Callable[..., Any], name: str, data: bytes, chance: random.Random, calls: int = 1
) -> int:
    """Call this loop; return the number of calls that it accepted.

    One number in the arguments changes between two calls.
    """
    items = chance.randrange(_ITEMS)
    values = [_value(argument, kind, data, items, chance) for argument, kind in loops()[name]]
    if name == "walk_bodies":  # its counts belong together
        values[5], values[-4], values[-1] = 4, np.zeros(3, np.int64), np.zeros(7, np.int64)
        values[-2] = np.zeros(chance.randrange(2_000), np.int64)
    if name == "list_words":
        values[2] = np.array([chance.randrange(-1, items + 2) for _ in range(items)], np.int32)
        values[4], values[5] = np.zeros(items + 1, np.int32), np.zeros(items, np.int32)
    is_hostile = chance.random() < 0.3
    if is_hostile:
        _spoil(values, chance)
    accepted = 0
    for number in range(calls):
        if number:
            _change(values, len(data), chance)
        accepted += _is_accepted(loop, values, is_hostile=is_hostile)
    return accepted


def _is_accepted(loop: Callable[..., Any], values: list[Any], *, is_hostile: bool) -> bool:
    try:
        loop(*values)
    except (ValueError, IndexError, OverflowError, MemoryError):
        return False
    except (TypeError, BufferError, AttributeError, NotImplementedError):
        if not is_hostile:
            raise
        return False
    return True


def _value(name: str, kind: str, data: bytes, items: int, chance: random.Random) -> Any:
    if kind == "Bytes":
        return np.frombuffer(data, np.uint8).copy()
    if kind == "list[Bytes]":
        return [np.frombuffer(chance.randbytes(size), np.uint8) % 20 for size in _TABLES]
    if kind == "list[NDArray[Any]]":
        return _columns(len(data), items, chance)
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "int":
        return _number(len(data), chance) if chance.random() < 0.1 else chance.randrange(1, 9)
    if chance.random() < 0.03:
        items = chance.randrange(_ITEMS)
    if name == "nodes":
        return _program(chance).reshape(-1)
    if name == "header_versions":
        return np.frombuffer(data.ljust(256), np.uint8)[:256].astype(np.int8) % 6 - 3
    if name in _SORTED and kind == "Int64":
        return np.sort(np.array([chance.randrange(max(items, 1)) for _ in range(items)], np.int64))
    if name in ("count", "base"):
        return np.array([chance.randrange(3) for _ in range(items)], np.int64)
    if kind == "Int64":
        return np.array([_number(max(len(data) - 7, 0), chance) for _ in range(items)], np.int64)
    size = 2 if name == "key" else items if name.startswith(("src", "dst")) else 2 * items
    return np.frombuffer(chance.randbytes(size), np.uint8).astype(_TYPES[kind])


def _columns(size: int, items: int, chance: random.Random) -> list[Any]:
    """Columns of packets, of which the first four are read."""
    columns: list[Any] = [np.zeros(items, dtype) for dtype in _COLUMNS]
    columns[0] = np.frombuffer(chance.randbytes(items), np.uint8) % 20
    for column in columns[1:4]:
        column[:] = [_number(size, chance) for _ in range(items)]
    return columns


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


def _change(values: list[Any], size: int, chance: random.Random) -> None:
    """Change a number in an argument."""
    value = chance.choice(values)
    if isinstance(value, list):
        value = chance.choice(value)
    if isinstance(value, np.ndarray) and value.size and value.flags.writeable:
        value[chance.randrange(len(value))] = np.array(_number(size, chance)).astype(value.dtype)


def _number(size: int, chance: random.Random) -> int:
    """A position or a length: mostly inside, else at an edge."""
    if chance.random() < 0.99:
        return chance.randrange(size + 1)
    return chance.choice((*_EDGES, size - 1, size, size + 1))


# Loops with sanitizers


def compiled(folder: Path) -> list[Path] | None:
    """The loops, compiled in a folder with the address and undefined behaviour sanitizers.

    None where Cython, the compiler or one of the sanitizers is missing.
    """
    compiler = shutil.which("gcc")
    if compiler is None or find_spec("Cython") is None or not _runtime():
        return None
    targets = []
    for name in _native.FUNCTIONS:
        source, target = folder / f"{name}.c", folder / f"{name}.abi3.so"
        subprocess.run(
            [sys.executable, "-m", "cython", "-3", str(LOOPS / f"{name}.py"), "-o", str(source)],
            cwd=ROOT, check=True, capture_output=True,
        )  # fmt: skip
        subprocess.run(
            [
                compiler, "-shared", "-fPIC", "-O1", "-g1", "-fwrapv", "-w",
                "-fsanitize=address,undefined", "-fno-sanitize=alignment",
                "-fno-sanitize-recover=all", "-DPy_LIMITED_API=0x030B0000",
                f"-I{sysconfig.get_paths()['include']}", str(source), "-o", str(target),
            ],
            check=True,
        )  # fmt: skip
        targets.append(target)
    return targets


def _runtime() -> str | None:
    """The library of the address sanitizer, which must be loaded before Python itself."""
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return library if Path(library).is_absolute() else None


def sanitized(folder: Path, calls: int, seed: int) -> subprocess.CompletedProcess[str]:
    """A process that calls each of the loops in a folder; it fails at the first error."""
    options = {
        "LD_PRELOAD": _runtime() or "",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2048",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.fuzz_native", str(calls), str(seed), str(folder)],
        env=os.environ | options, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def _load(path: Path) -> Any:
    name = f"dissector._native.{path.name.split('.')[0]}"
    spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, str(path)))
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(calls: int, seed: int, folder: Path | None = None) -> None:
    """Call each loop that often; print how many calls it accepted."""
    for module_name, names in _native.FUNCTIONS.items():
        module = _native if folder is None else _load(folder / f"{module_name}.abi3.so")
        for name in names:
            chance = random.Random(f"{name} {seed}")
            accepted = sum(
                call_loop(
                    getattr(module, name), name, chance.randbytes(chance.randrange(300)), chance,
                    min(CALLS_PER_ARGUMENTS, calls - done),
                )
                for done in range(0, calls, CALLS_PER_ARGUMENTS)
            )  # fmt: skip
            print(f"{name:20} {calls:>9,} calls, {accepted:>9,} accepted", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *map(Path, sys.argv[3:]))

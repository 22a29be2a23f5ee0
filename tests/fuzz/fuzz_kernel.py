"""Calls of the compiled loops, with arguments that no code of this project would pass.

A loop checks every position against the length of its arrays, so that no argument makes it read or
write outside. Which arguments it takes is read from its declaration: arrays of the declared types,
mostly of one length, with numbers that are on the edge of something. Where one does go outside
tells a kernel that is compiled with `-fsanitize=address,undefined`, or luck.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dissector import kernel

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
_TABLES = {"ethertypes": 1 << 16, "protocols": 1 << 8, "families": 1 << 8}
_MOST = (1 << 63) - 1
_ITEMS = 40


@cache
def _loops() -> list[tuple[str, list[tuple[str, str]]]]:
    """Name and type of each argument of each loop."""
    text = (Path(kernel.__file__).parent / "loops.pyi").read_text()
    return [
        (each.name, [(arg.arg, ast.unparse(arg.annotation or arg)) for arg in each.args.args])
        for each in ast.parse(text).body
        if isinstance(each, ast.FunctionDef)
    ]


def call(data: bytes) -> None:
    """One call of one loop; the first bytes of `data` say which, and with what."""
    if not kernel.COMPILED:
        return
    chance = random.Random(data[:8])
    loops = _loops()
    name, arguments = loops[chance.randrange(len(loops))]
    loop: Callable[..., Any] = getattr(kernel.loops, name)
    items = chance.randrange(_ITEMS)
    values = [_value(argument, kind, data[8:], items, chance) for argument, kind in arguments]
    with suppress(ValueError, OverflowError):
        loop(*values)


def _value(name: str, kind: str, data: bytes, items: int, chance: random.Random) -> Any:
    if kind == "Bytes":
        return np.frombuffer(data, np.uint8).copy()
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "int":
        return abs(_number(len(data), chance)) if chance.random() < 0.3 else chance.randrange(9)
    if chance.random() < 0.03:
        items = chance.randrange(_ITEMS)
    if kind == "UInt8":
        size = _TABLES.get(name, items)
        return np.frombuffer(chance.randbytes(size), np.uint8) % 20
    if kind == "Int64":
        return np.array([_number(len(data), chance) for _ in range(items)], np.int64)
    if kind == "NDArray[np.int32]":  # a program, or to be written
        return np.array([chance.randrange(-2, 40) for _ in range(2 * items)], np.int32)
    return np.zeros(2 * items, _TYPES[kind])


def _number(size: int, chance: random.Random) -> int:
    """A position or a length: mostly inside, else on an edge."""
    if chance.random() < 0.98:
        return chance.randrange(size + 1)
    return chance.choice((0, -1, size - 1, size, size + 1, _MOST, _MOST - 30, -_MOST - 1))

"""Changes that captures and messages suffer, or that someone hostile makes: a few at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

_NUMBERS = (0, 1, -1, 2, 7, 0x7F, 0x80, 0xFF, 0x7FFF, -0x8000, 0x10000, 0x7FFF_FFFF, -0x8000_0000)
"""Lengths and counts that are on the edge of something."""


def mutated(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """`data` with one to four changes; `others` are where foreign bytes come from."""
    for _ in range(chance.randint(1, 4)):
        data = chance.choice(_CHANGES)(data, others, chance)
    return data


def _range(data: bytes, chance: random.Random) -> tuple[int, int]:
    begin = chance.randint(0, len(data))
    return begin, min(len(data), begin + chance.choice((1, 2, 4, 16, 64, 1024)))


def _flip(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _number(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    width = chance.choice((1, 2, 4, 8))
    at = chance.randint(0, max(0, len(data) - width))
    number = chance.choice(_NUMBERS) & (1 << 8 * width) - 1
    order = chance.choice(("big", "little"))
    return data[:at] + number.to_bytes(width, order) + data[at + width :]  # type: ignore[arg-type]


def _drop(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    begin, end = _range(data, chance)
    return data[:begin] + data[end:]


def _double(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    begin, end = _range(data, chance)
    return data[:end] + data[begin:end] * chance.choice((1, 2, 40)) + data[end:]


def _noise(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    begin, end = _range(data, chance)
    return data[:begin] + chance.randbytes(end - begin) + data[end:]


def _cut(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    return data[: chance.randint(0, len(data))]


def _splice(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    other = chance.choice(others)
    begin, end = _range(other, chance)
    at = chance.randint(0, len(data))
    return data[:at] + other[begin:end] + data[at + chance.choice((0, end - begin)) :]


_CHANGES: tuple[Callable[[bytes, Sequence[bytes], random.Random], bytes], ...] = (
    _flip, _flip, _number, _number, _drop, _double, _noise, _cut, _splice,
)  # fmt: skip

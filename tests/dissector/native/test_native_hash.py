"""The hash of words has a key, so that an attacker cannot choose colliding words."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from dissector import _native
from dissector.byteview import ContiguousBytes
from dissector.exchanges import decoded_fields
from dissector.packets.block import PAD
from tests.programs import printed

MASK = (1 << 64) - 1
BEGINNINGS = [b"a", b"b", b"aa", b"ab", b"client-a-", b"client-b-"]


def hashes(words: list[bytes], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    length = np.array([len(word) for word in words])
    at = np.cumsum(length) - length
    result = np.zeros(len(words), np.uint64)
    data = np.frombuffer(b"".join(words) or b"\0", np.uint8)
    _native.hash_words(data, at, length, key, result)
    return result


def multiplied(word: bytes, seed: int) -> int:
    """A hash that multiplies by a constant which everybody knows."""
    value = seed ^ len(word)
    for at in range(0, len(word), 8):
        value = (value ^ int.from_bytes(word[at : at + 8], "big")) * 0x9E3779B97F4A7C15 & MASK
        value ^= value >> 29
    return value


def crafted(count: int) -> list[bytes]:
    """Words of 272 bytes: bit 63 of a number cancels against bits 63 and 34 of the next one."""
    pairs = [(0, 0), (1 << 63, 1 << 63 | 1 << 34)]
    choices = itertools.islice(itertools.product(pairs, repeat=17), count)
    return [
        b"".join(number.to_bytes(8, "big") for pair in choice for number in pair)
        for choice in choices
    ]


@pytest.mark.skipif(sys.hash_info.algorithm != "siphash13", reason="Python's hash is another one")
def test_the_hash_is_that_of_python() -> None:
    data = os.urandom(400)
    code = (
        "import sys; data = bytes.fromhex(sys.argv[1])\n"
        "for size in range(1, 200): print(hash(data[size : 2 * size]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, data.hex()], env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = [int(line) & MASK for line in run.stdout.split()]
    words = [data[size : 2 * size] for size in range(1, 200)]
    assert hashes(words, np.zeros(2, np.uint64)).tolist() == expected


def test_crafted_words_do_not_collide(both: str) -> None:
    words = crafted(64_000 if both == "compiled" else 2_000)
    for seed in (0, 1, 0x123456789ABCDEF, MASK):
        assert len({multiplied(word, seed) for word in words[:500]}) == 1
    low = (1 << 20) - 1
    for key in (_native.HASH_KEY, np.zeros(2, np.uint64)):
        values = hashes(words, key)
        assert len(np.unique(values)) == len(words)
        # In a table of 2^20 slots, random numbers share one with at most some others.
        assert np.bincount((values & np.uint64(low)).astype(np.int64)).max() < 10


def test_half_of_the_bits_change_with_each_bit() -> None:
    chance = np.random.default_rng(1)
    for size in (1, 7, 8, 20):
        base = chance.integers(0, 256, (30, size), np.uint8)
        before = hashes([each.tobytes() for each in base], _native.HASH_KEY)
        for bit in range(8 * size):
            other = base.copy()
            other[:, bit // 8] ^= 1 << bit % 8
            after = hashes([each.tobytes() for each in other], _native.HASH_KEY)
            changed = np.unpackbits((before ^ after).view(np.uint8)).mean()
            assert 0.42 < changed < 0.58, f"bit {bit} of {size} bytes changes {changed:.0%}"


def test_codes_do_not_depend_on_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*crafted(300), b"", b"a", b"", b"b", b"a"] * 2
    data = np.frombuffer(b"".join(words) + bytes(PAD), np.uint8)
    length = np.array([len(word) for word in words])
    at = np.cumsum(length) - length
    for key in (1, 2, 3):
        monkeypatch.setattr(_native, "HASH_KEY", np.full(2, key, np.uint64))
        result = decoded_fields.texts([ContiguousBytes(data)], np.zeros_like(at), at, length)
        text = [word.decode("utf-8", "backslashreplace") for word in words]
        assert result.dictionary.to_pylist() == list(dict.fromkeys(text))
        assert result.to_pylist() == text


def test_the_key_is_another_one_in_each_process() -> None:
    code = "from dissector import _native; print(_native.HASH_KEY.tolist())"
    assert printed(code) != printed(code)


def test_words_that_end_in_the_same_bytes_are_distinct() -> None:
    words = [begin + end for end in (b"", b"x", b"01234567", b"0123456789") for begin in BEGINNINGS]
    length = np.array([len(word) for word in [*words, *words]])
    at = np.cumsum(length) - length
    code, first = np.empty(len(at), np.int32), np.empty(len(at), np.int64)
    data = np.frombuffer(b"".join([*words, *words]), np.uint8)
    count = _native.number_words(data, at, length, _native.HASH_KEY, code, first)
    assert count == len(words)
    assert code.tolist() == [*range(count)] * 2

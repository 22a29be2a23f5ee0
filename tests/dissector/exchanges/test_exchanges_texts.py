"""Texts of byte ranges in several spaces: each equals the decoded bytes of its range."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.byteview import ByteView, ContiguousBytes
from dissector.exchanges.decoded_fields import texts

TEXTS = [None, b"", b"a", b"orders", b"\xff", "Größe".encode(), bytes(8), b"x" * 99]


def view_of_bytes(data: bytes) -> ByteView:
    """A view of `data` in pieces of one byte, which are in memory in reversed order."""
    address = np.arange(len(data), dtype=np.int64)
    reverse = np.frombuffer(data[::-1] + bytes(8), np.uint8)
    return ByteView(reverse, address, address[::-1].copy(), np.ones(len(data), np.int64))


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(TEXTS)), max_size=40))
def test_each_text_is_its_range(values: list[tuple[int, bytes | None]]) -> None:
    data = [b"", b"", b""]
    at, length = [], []
    for space, word in values:
        at.append(len(data[space]))
        length.append(-1 if word is None else len(word))
        data[space] += word or b""
    spaces = [ContiguousBytes.of(data[0]), view_of_bytes(data[1]), ContiguousBytes.of(data[2])]
    space = np.array([space for space, _ in values], np.int64)

    result = texts(spaces, space, np.array(at, np.int64), np.array(length, np.int64))

    result.validate(full=True)
    assert result.to_pylist() == [
        None if word is None else word.decode("utf-8", "backslashreplace") for _, word in values
    ]
    distinct = result.dictionary.to_pylist()
    assert len(distinct) == len(set(distinct))

"""For each layout and message: the only error is DecodeError, and each byte is explained."""

from __future__ import annotations

import random
from functools import cache
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.errors import DecodeError, TooManyElements
from dissector.protocol.body_end import body_end
from dissector.protocol.explain import BodyReader, Explained, explain
from dissector.protocol.message import response_header
from dissector.protocol.notation import Direction, Layout
from dissector.protocol.registry import apis, layout, versions
from dissector.protocol.tree_decoder import decode
from dissector.protocol.wire import Prefix
from tests.dissector.protocol.protocol_writer import write

LAYOUTS = [
    layout(key, direction, version)
    for key in apis()
    for direction in Direction
    for version in versions(key)
]
EACH_API = pytest.mark.parametrize(
    "layouts", [[*group] for _, group in groupby(LAYOUTS, lambda each: each.api)],
    ids=lambda group: group[0].api,
)  # fmt: skip


def name(which: Layout) -> str:
    return f"{which.api}-{which.direction.name.lower()}-{which.version}"


@cache
def body(which: Layout, size: int = 400) -> bytes:
    """A random body, the same at every run, of at most about that size."""
    pick = random.Random(name(which))
    return min((write(which, pick) for _ in range(6)), key=lambda data: abs(len(data) - size))


@EACH_API
def test_every_byte_is_explained(layouts: list[Layout]) -> None:
    for which in layouts:
        data = body(which)
        decode(which, data)
        explanation = explain(which, data)
        assert explanation.error is None, name(which)
        assert contiguous(explanation.events, 0, 0) == (len(explanation.events), len(data))


def contiguous(events: list[Explained], index: int, depth: int) -> tuple[int, int]:
    """Follow the events of one depth, each beginning where the one before ends."""
    end = None
    while index < len(events) and events[index].depth >= depth:
        event = events[index]
        assert event.depth == depth
        assert end is None or event.offset == end
        end = event.offset + event.length
        index += 1
        if index < len(events) and events[index].depth > depth:
            assert event.offset <= events[index].offset
            index, inner = contiguous(events, index, depth + 1)
            assert inner == end
    return index, end or 0


@EACH_API
def test_cut_at_any_byte(layouts: list[Layout]) -> None:
    for which in layouts:
        data = body(which, 60)
        for size in range(len(data)):
            with pytest.raises(DecodeError) as caught:
                decode(which, data[:size])
            assert caught.value.path, name(which)
            assert caught.value.offset <= size, name(which)


@EACH_API
def test_bytes_left_over(layouts: list[Layout]) -> None:
    for which in layouts:
        data = body(which)
        with pytest.raises(DecodeError, match="2 bytes are left over") as caught:
            decode(which, data + b"\0\0")
        assert caught.value.offset == len(data), name(which)


@settings(max_examples=300)
@given(st.sampled_from(LAYOUTS), st.binary(max_size=200))
def test_any_bytes(which: Layout, data: bytes) -> None:
    agree(which, data)


@settings(max_examples=300)
@given(st.sampled_from(LAYOUTS), st.data())
def test_any_byte_changed(which: Layout, data: st.DataObject) -> None:
    changed = bytearray(body(which) or b"\0")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    agree(which, bytes(changed))


def agree(which: Layout, data: bytes) -> None:
    """Both decoders read the message, or both report the same place of an error."""
    explanation = explain(which, data)
    if explanation.error is None:
        decode(which, data)
    else:
        with pytest.raises(DecodeError) as caught:
            decode(which, data)
        assert str(caught.value) == str(explanation.error)
        assert 0 <= caught.value.offset <= len(data)


RESPONSES = [which for which in LAYOUTS if which.direction is Direction.RESPONSE]


@settings(max_examples=500)
@given(st.sampled_from(RESPONSES), st.data())
def test_the_end_of_a_body_whose_end_is_missing(which: Layout, data: st.DataObject) -> None:
    header = bytes(4) + bytes(which.header_version)
    message = bytearray(header + body(which) + bytes(data.draw(st.integers(0, 3))))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(4, len(message) - 1)) if len(message) > 4 else 0
        message[at] = data.draw(st.integers(0, 255))
    size = len(message) + data.draw(st.integers(-5, 5))
    present = bytes(message[: max(min(data.draw(st.integers(4, len(message))), size), 4)])
    size = max(size, 4)
    try:
        end: int | None = body_end(present, size, (which.api_key, which.version))
    except DecodeError:
        end = None
    if (expected := end_of_body(which, present, size)) != size:
        assert end == expected
    elif end != size:  # no missing byte decides where the body ends
        for fill in (b"\0", b"\x7f", b"\xff"):
            assert end_of_body(which, present + fill * (size - len(present)), size) == end


def end_of_body(which: Layout, present: bytes, size: int) -> int | None:
    """`body_end` by the decoder that explains: None for no body, `size` for an unknown end."""
    reader = BodyReader(Prefix(present, size))
    try:
        body_layout = response_header(reader, which.api_key, which.version)
        reader.fields(body_layout.fields, body_layout.flexible)
    except (IndexError, TooManyElements):
        return size
    except DecodeError:
        return None
    return reader.at

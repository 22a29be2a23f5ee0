"""Messages with millions of elements: refused before they take memory, by all three walkers."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from dissector import open_capture
from dissector.byteview import ByteView, ContiguousBytes
from dissector.protocol import registry
from dissector.protocol.column_decoder import decode_columns
from dissector.protocol.explain import explain
from dissector.protocol.notation import Direction
from dissector.protocol.roles import ROLES
from tests.dissector.test_capture_scans import packets
from tests.programs import PRINT_PEAK, printed

METADATA = 3
SEGMENT = 60_000


def names(count: int, name: bytes = b"") -> bytes:
    """The body of a Metadata request, version 1: this number of topics with this name."""
    return struct.pack(">i", count) + (struct.pack(">h", len(name)) + name) * count


def good(bodies: list[bytes], *, pieces: bool) -> list[bool]:
    """Whether the column walker decodes each body."""
    layout = registry.layout(METADATA, Direction.REQUEST, 1)
    end = np.cumsum([len(body) for body in bodies])
    start = end - [len(body) for body in bodies]
    flat = ContiguousBytes.of(b"".join(bodies))
    if not pieces:
        return decode_columns(layout, flat, start, end, frozenset(ROLES)).good.tolist()
    border = np.array([0, 7, int(end[-1])])
    space = ByteView(flat.data, border[:-1], border[:-1], np.diff(border))
    return decode_columns(layout, space, start, end, frozenset(ROLES)).good.tolist()


@pytest.mark.parametrize("pieces", [True, False])
def test_a_quarter_of_the_bytes_are_elements_at_most(pieces: bool) -> None:
    bodies = [names(16_384), names(16_385), names(30_000, b"ab"), names(30_000, b"a"), names(3)]
    expected = [True, False, True, False, True]
    assert good(bodies, pieces=pieces) == expected
    for body, is_good in zip(bodies, expected, strict=True):
        error = explain(registry.layout(METADATA, Direction.REQUEST, 1), body).error
        assert (error is None) == is_good


def capture(path: Path, body: bytes) -> Path:
    """A Metadata request with this body, in segments, and its response."""
    request = struct.pack(">hhih", METADATA, 1, 7, 1) + b"c" + body
    request = struct.pack(">i", len(request)) + request
    response = struct.pack(">iiiii", 16, 7, 0, 1, 0)
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101)
    segments = [request[at : at + SEGMENT] for at in range(0, len(request), SEGMENT)]
    rows = packets(len(segments) + 4)
    for row, (port, seq, ack, flags, payload) in zip(
        rows,
        [
            (40_000, 999, 0, 2, b""), (9092, 4_999, 1_000, 18, b""),
            (40_000, 1_000, 5_000, 16, b""),
            *((40_000, 1_000 + SEGMENT * turn, 5_000, 24, each)
              for turn, each in enumerate(segments)),
            (9092, 5_000, 1_000 + len(request), 24, response),
        ],
        strict=True,
    ):  # fmt: skip
        row["source"], row["target"] = (1, 2) if port == 40_000 else (2, 1)
        row["source_port"], row["target_port"] = port, 49_092 - port
        row["seq"], row["ack"], row["flags"] = seq, ack, flags
        row["captured"] = row["length"] = row["total"] = 40 + len(payload)
        head += row.tobytes() + payload
    path.write_bytes(head)
    return path


def test_a_message_of_too_many_elements_is_a_problem(tmp_path: Path) -> None:
    path = capture(tmp_path / "names.pcap", names(50_000))
    tables = open_capture(path).tables(["exchanges", "problems"])
    (exchange,) = tables["exchanges"].to_pylist()
    assert exchange["status"] == "undecoded"
    (problem,) = tables["problems"].to_pylist()
    assert problem["kind"] == "too_many_elements"
    assert "50000" in problem["detail"]
    assert problem["packet"] == exchange["request_packet"] == 4


@pytest.mark.slow
def test_the_peak_of_millions_of_empty_names(tmp_path: Path) -> None:
    path = capture(tmp_path / "names.pcap", names(6_000_000))
    code = (
        "import sys, dissector\n"
        "for _ in dissector.open_capture(sys.argv[1], memory=128 << 20).stream(): pass\n"
    )
    assert int(printed(code + PRINT_PEAK, path)) >> 10 < 300

"""Offsets of partitions in messages of old clients."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import analysis
from dissector.capture import open_capture
from tests.dissector.streams.dialogue import Dialogue, request, response

END, START = -1, -2
TIMESTAMP = 1_700_000_000_000


def topic(partitions: bytes) -> bytes:
    return struct.pack(">ih6si", 1, 6, b"orders", 4) + partitions


def asked(timestamp: int) -> bytes:
    """The body of ListOffsets 0, for the offsets of four partitions."""
    partitions = b"".join(struct.pack(">iqi", index, timestamp, 9) for index in range(4))
    return struct.pack(">i", -1) + topic(partitions)


def returned(*lists: list[int]) -> bytes:
    """The body of the response: the offsets of each partition, the latest first."""
    return topic(
        b"".join(
            struct.pack(f">ihi{len(each)}q", index, 0, len(each), *each)
            for index, each in enumerate(lists)
        )
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    dialogue, connection = Dialogue.connected()
    lists = [5_000_000_000, 900, 0], [7], [], [0]
    for number, timestamp in enumerate([END, START, TIMESTAMP]):
        connection.client(request(2, 0, number, asked(timestamp)))
        connection.broker(response(number, returned(*lists)))
    commit = struct.pack(">h1s", 1, b"g") + topic(
        b"".join(struct.pack(">iqh", index, 4, -1) for index in range(4))
    )
    connection.client(request(8, 0, 9, commit))
    connection.broker(response(9, topic(b"".join(struct.pack(">ih", n, 0) for n in range(4)))))
    return dialogue.written(tmp_path / "old.pcap")


def test_the_first_of_several_offsets_is_the_one_of_the_timestamp(path: Path) -> None:
    rows = open_capture(path).tables(["partitions"])["partitions"].to_pylist()
    offsets = [row["offset"] for row in rows if row["api"] == "ListOffsets"]
    assert offsets == [5_000_000_000, 7, None, 0] * 3


def test_the_end_is_known_from_an_old_client(path: Path) -> None:
    """A partition whose list is empty has no end."""
    lag = analysis.lag(path).set_index("partition").sort_index()
    assert lag["end_offset"].tolist()[:2] == [5_000_000_000, 7]
    assert lag["lag"].tolist()[:2] == [4_999_999_996, 3]
    assert lag["end_offset"].isna().tolist() == [False, False, True, False]

"""A capture that goes on for days: what is over is given out and forgotten, and nothing changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dissector.packets.block import PacketBlock
from dissector.packets.files import FileSource
from dissector.pipeline import Pipeline
from tests.captures.recorded import CAPTURES

SECOND = 10**9
TABLES = ("exchanges", "errors", "connections", "partitions", "memberships", "problems", "batches")


def rows(capture: Pipeline) -> dict[str, Counter[Any]]:
    """All rows, by table, without their order."""
    by_table: dict[str, Counter[Any]] = {name: Counter() for name in TABLES}
    for name, batch in capture.stream(TABLES):
        columns = [column.to_pylist() for column in batch.columns]
        by_table[name].update(map(repr, zip(*columns, strict=True)))
    return by_table


@pytest.mark.parametrize("name", ["kafka-4-quotas.pcap.zst", "kafka-4-tls-secrets.pcapng.zst"])
def test_rows_are_those_of_a_capture_that_forgets_nothing(name: str) -> None:
    path = [str(CAPTURES / name)]

    def capture(**options: Any) -> Pipeline:
        return Pipeline(FileSource(path, 1 << 12), hold=False, ports=(9092, 19092), **options)

    whole, forgetful = capture(), capture(forget_after=SECOND)
    assert rows(forgetful) == rows(whole)


class Again:
    """The packets of a file, many times, each time later: one day after the other."""

    def __init__(self, path: Path, times: int, interval: int) -> None:
        self.names = [str(path)]
        self.total_bytes: int | None = None
        self._path, self._left, self._interval = str(path), times, interval
        self._shift = -interval
        self._source: FileSource | None = None

    def read(self, reserve: int) -> PacketBlock | None:
        while True:
            if self._source is None:
                if not self._left:
                    return None
                self._left -= 1
                self._shift += self._interval
                self._source = FileSource([self._path], 1 << 16)
            block = self._source.read(reserve)
            if block is not None:
                move = np.uint32(self._shift // SECOND)  # initial sequence numbers differ
                assert block.until is not None
                return replace(
                    block, time=block.time + self._shift, until=block.until + self._shift,
                    seq=block.seq + move, ack=block.ack + move,
                )  # fmt: skip
            self._source = None

    def close(self) -> None:
        pass


def test_memory_does_not_grow_with_the_connections() -> None:
    path, days = CAPTURES / "kafka-4-java.pcap.zst", 40
    once = Pipeline(FileSource([str(path)], 1 << 16), hold=False).tables(
        ["exchanges", "connections"]
    )
    capture = Pipeline(Again(path, days, 3600 * SECOND), hold=False, forget_after=60 * SECOND)
    tables = capture.tables(["exchanges", "connections"])
    assert len(tables["connections"]) == days * len(once["connections"])
    assert sorted(tables["connections"]["connection_id"].to_pylist()) == list(
        range(days * len(once["connections"]))
    )
    statuses = Counter(once["exchanges"]["status"].to_pylist())
    assert Counter(tables["exchanges"]["status"].to_pylist()) == Counter(
        {status: days * count for status, count in statuses.items()}
    )
    table = capture._reader.streams.connections
    assert table.known == days * len(once["connections"])
    assert table.count <= 2 * len(once["connections"])

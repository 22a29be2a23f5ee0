"""Memory has a budget: the oldest pending data is given up, and counted."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import dissector
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.correlator import Correlator
from dissector.exchanges.topic_names import TopicNames
from tests.captures import recorded


@pytest.fixture
def unanswered(tmp_path: Path) -> Path:
    """Requests of a recording, many times over, each time from other ports; no response."""
    packets = [
        each
        for each in recorded.read("kafka-4-java.pcap.zst")
        if each.tcp[2:4] == (9092).to_bytes(2, "big")
    ]
    again = [recorded.moved(each, turn, turn * 10**6) for turn in range(40) for each in packets]
    return recorded.write(tmp_path / "requests.pcap", again)


def exchanges_and_problems(path: Path, **options: int) -> tuple[list[dict], list[str]]:
    tables = dissector.open_capture(path, **options).tables(["exchanges", "problems"])
    problems = tables["problems"].to_pylist()
    return tables["exchanges"].to_pylist(), [each["kind"] for each in problems]


def test_requests_that_are_given_up_are_there_and_unanswered(
    unanswered: Path, monkeypatch: pytest.MonkeyPatch
):
    whole, kinds = exchanges_and_problems(unanswered)
    assert "memory" not in kinds
    made = Correlator.__init__

    def sparing(self: Correlator, names: TopicNames, **options: object) -> None:
        made(self, names, **(options | {"memory": 20_000}))  # type: ignore[arg-type]

    monkeypatch.setattr(Correlator, "__init__", sparing)
    spared, kinds = exchanges_and_problems(unanswered)
    assert kinds.count("memory") == 1
    assert sorted(map(str, spared)) == sorted(map(str, whole))


def test_little_memory_reads_in_smaller_blocks_to_the_same_end():
    path = recorded.CAPTURES / "bulk-tansu.pcap.zst"
    assert exchanges_and_problems(path, memory=1 << 20) == exchanges_and_problems(path)


@pytest.mark.parametrize("name", ["kafka-python-mock.pcap", "librdkafka-mock-errors.pcap"])
def test_malformed_messages_do_not_keep_their_block_in_memory(name: str):
    capture = dissector.open_capture(recorded.CAPTURES / name)
    gc.collect()
    gc.disable()  # a cycle would keep the bytes of a block until the next collection
    try:
        kinds = [kind for _, rows in capture.stream(["problems"]) for kind in rows["kind"].tolist()]
        blocks = [each for each in gc.get_objects() if isinstance(each, CorrelatedBlock)]
    finally:
        gc.enable()
    assert "malformed" in kinds
    assert not blocks

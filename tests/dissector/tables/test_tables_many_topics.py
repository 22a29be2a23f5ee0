"""Rows of messages with many topics."""

from __future__ import annotations

import struct
from pathlib import Path

from dissector.capture import open_capture
from dissector.tables.arrow import MOST_TEXT
from tests.dissector.streams.dialogue import Dialogue, pcap, request, response, split
from tests.programs import printed

READ = """
import sys
import pyarrow
import dissector
batches = dissector.open_capture(sys.argv[1]).stream(["errors"])
print(sum(len(batch) for _, batch in batches), pyarrow.default_memory_pool().max_memory())
"""


def _text(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _unknown_topics(path: Path, count: int, client: str = "app") -> None:
    """Write a capture of a Metadata request for topics that do not exist."""
    names = [_text(b"topic-%06d" % number) for number in range(count)]
    unknown = [struct.pack(">h", 3) + name + bytes(5) for name in names]
    dialogue, connection = Dialogue.connected()
    connection.client(request(3, 1, 1, b"".join([struct.pack(">i", count), *names]), client))
    connection.broker(response(1, b"".join([bytes(8), struct.pack(">i", count), *unknown])))
    path.write_bytes(pcap(split(dialogue.packets, 8_000)))


def test_errors_of_many_topics_take_little_memory(tmp_path: Path) -> None:
    """No row of an error has all topics of its request."""
    path = tmp_path / "capture.pcap"
    _unknown_topics(path, 5_000)
    rows, peak = map(int, printed(READ, path).split())
    assert rows == 5_000
    assert peak < 50_000_000, "a list of all topics in each row would take more"


def test_a_long_client_id_is_cut_where_many_rows_repeat_it(tmp_path: Path) -> None:
    """A column of Arrow holds 2 GiB of text."""
    path = tmp_path / "capture.pcap"
    client, count = "c" * 32_000, 70_000
    _unknown_topics(path, count, client)
    tables = open_capture([path]).tables(["exchanges", "errors"])
    assert tables["exchanges"]["client_id"].to_pylist() == [client]
    short = "c" * (MOST_TEXT // count) + "…"
    assert tables["errors"]["client_id"].unique().to_pylist() == [short]
    assert tables["errors"].num_rows == count


def test_partitions_of_a_topic_with_a_long_name(tmp_path: Path) -> None:
    topic, count = b"t" * 32_000, 2_000
    partitions = [struct.pack(">iq", number, number) + _text(b"") for number in range(count)]
    head = _text(b"group") + struct.pack(">i", -1) + _text(b"") + struct.pack(">qi", -1, 1)
    asked = [head, _text(topic), struct.pack(">i", count), *partitions]
    codes = [struct.pack(">ih", number, 3) for number in range(count)]
    dialogue, connection = Dialogue.connected()
    connection.client(request(8, 2, 1, b"".join(asked)))
    answer = [struct.pack(">i", 1), _text(topic), struct.pack(">i", count), *codes]
    connection.broker(response(1, b"".join(answer)))
    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap(split(dialogue.packets, 8_000)))
    rows = open_capture([path]).tables(["partitions"])["partitions"]
    assert rows["topic"].unique().to_pylist() == [topic.decode()]
    assert rows["partition"].to_pylist() == [*range(count)]
    assert rows["error"].unique().to_pylist() == ["UNKNOWN_TOPIC_OR_PARTITION"]

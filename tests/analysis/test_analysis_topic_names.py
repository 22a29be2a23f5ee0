"""Output contains names of topics from the wire: short, on one line, and without controls."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.analysis.commands import Ran
from tests.dissector.streams.dialogue import Dialogue, pcap, request, response, split

METADATA = 3
SEPARATORS = "a\x85b\u2028c\x9bd"


def capture(folder: Path, topic: str) -> str:
    """A capture of requests for the metadata of a topic, and responses without topics."""
    name = topic.encode()
    dialogue, connection = Dialogue.connected()
    for number in range(3):
        body = struct.pack(">ih", 1, len(name)) + name
        connection.client(request(METADATA, 1, number, body))
        connection.broker(response(number, struct.pack(">iii", 0, 1, 0)))
    path = folder / "x.pcap"
    path.write_bytes(pcap(split(dialogue.packets, 1400)))
    return str(path)


@pytest.mark.parametrize("command", ["sniff", "show", "summary", "topology", "errors"])
def test_a_long_name_is_shortened(command: str, tmp_path: Path, ran: Ran) -> None:
    assert max(map(len, ran(command, capture(tmp_path, "t" * 30_000)).out.split("\n"))) < 1000


def test_an_object_of_show_is_one_line_for_every_reader(tmp_path: Path, ran: Ran) -> None:
    printed = ran("show", "--format", "json", capture(tmp_path, SEPARATORS))
    assert [row["topics"] for row in printed.rows] == [[SEPARATORS]] * 3
    assert all(line.isprintable() for line in printed.out.splitlines())

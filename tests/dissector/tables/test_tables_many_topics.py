"""Rows of messages with many topics."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

from tests.dissector.streams.dialogue import Dialogue, pcap, request, response, split

ROOT = Path(__file__).parents[3]
READ = """
import sys
import pyarrow
import dissector
batches = dissector.open_capture(sys.argv[1]).stream(["errors"])
print(sum(len(batch) for _, batch in batches), pyarrow.default_memory_pool().max_memory())
"""


def test_errors_of_many_topics_take_little_memory(tmp_path: Path) -> None:
    """A Metadata request for topics that do not exist: no row of an error has all these topics."""
    topics = [b"topic-%06d" % number for number in range(5_000)]
    names = [struct.pack(">h", len(name)) + name for name in topics]
    count = struct.pack(">i", len(names))
    unknown = [struct.pack(">h", 3) + name + bytes(5) for name in names]
    dialogue = Dialogue()
    connection = dialogue.connect()
    connection.client(request(3, 1, 1, b"".join([count, *names])))
    connection.broker(response(1, b"".join([bytes(8), count, *unknown])))
    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap(split(dialogue.packets, 8_000)))
    run = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True,
        cwd=ROOT,
    )  # fmt: skip
    rows, peak = map(int, run.stdout.split())
    assert rows == len(topics)
    assert peak < 50_000_000, "a list of all topics in each row would take more"

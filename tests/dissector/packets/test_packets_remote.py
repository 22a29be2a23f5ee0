"""URLs are read like files: in ranges, and only the requested bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fsspec", reason="the dependency group spark is not installed")

import fsspec

from dissector.errors import CaptureError
from dissector.packets import open_packets
from dissector.packets.formats import remote
from dissector.packets.formats.byte_input import ByteInput, RangeSource
from dissector.packets.formats.capture_reader import CaptureReader, ReadState
from dissector.packets.formats.file_ranges import boundary, primed, size_of
from dissector.packets.paths import open_reader
from tests.captures.recorded import CAPTURES

CAPTURE = CAPTURES / "kafka-4-sasl.pcap.zst"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    """A folder in memory, with a capture as it is and one that is compressed."""
    system = fsspec.filesystem("memory")
    source = ByteInput(str(CAPTURE))
    plain = source.take(1 << 30)
    source.close()
    (tmp_path / "plain.pcap").write_bytes(plain)
    system.pipe({"/some/b.pcap": plain, "/some/deep/c.pcap.zst": CAPTURE.read_bytes()})
    yield "memory://some"
    system.rm("/some", recursive=True)


def test_what_a_url_means(folder: str) -> None:
    both = ["memory:///some/b.pcap", "memory:///some/deep/c.pcap.zst"]
    assert remote.files(folder) == both
    assert remote.files(f"{folder}/*.pcap") == both[:1]
    assert remote.files(f"{folder}/b.pcap") == [f"{folder}/b.pcap"]
    assert remote.files(f"{folder}/none.pcap") == [f"{folder}/none.pcap"]


def test_parts_are_those_of_a_file(folder: str, tmp_path: Path) -> None:
    here, there = str(tmp_path / "plain.pcap"), f"{folder}/b.pcap"
    size = size_of(here)
    assert size is not None
    assert size_of(there) == size
    assert size_of(f"{folder}/deep/c.pcap.zst") is None
    at = boundary(here, size // 2)
    assert at is not None
    assert boundary(there, size // 2) == at
    for begin, end in ((24, at), (at, size), (24, size)):
        read = []
        for path in (here, there):
            state = ReadState(primed(path, []), begin)
            reader = CaptureReader(path, RangeSource(path, begin, end), state)
            read.append(reader.read(0, 1 << 30))
        local, remote = (records for records in read if records is not None)
        assert (local.data == remote.data).all()
        assert len(local.number) == len(remote.number) > 10


@pytest.mark.parametrize("name", ["b.pcap", "deep/c.pcap.zst"])
def test_a_capture_as_a_whole(folder: str, name: str) -> None:
    reader = open_reader(f"{folder}/{name}", [])
    expected = open_packets([CAPTURE])
    count = sum(block.packets_seen for block in iter(lambda: expected.read(0), None))
    assert sum(len(each.number) for each in iter(lambda: reader.read(0, 1 << 20), None)) == count


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("memory://some/none.pcap", "none.pcap: No such file or directory"),
        ("http://127.0.0.1:1/some.pcap", "some.pcap: Cannot connect to host"),
        ("nowhere://some/capture", "nowhere"),
    ],
)
def test_what_is_not_there(url: str, complaint: str) -> None:
    if url.startswith("http:"):
        pytest.importorskip("aiohttp", reason="the dependency group spark is not installed")
    with pytest.raises(CaptureError, match=complaint):
        open_reader(url, [])

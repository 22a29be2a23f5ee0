"""Log segments, block by block."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from dissector.errors import CaptureError
from dissector.records import log_segment
from dissector.records.decode import decode_records
from dissector.records.log_segment import is_segment, read_segment
from dissector.records.record_reader import read_records
from tests.dissector.records.records_writers import Entry, aio_kafka, batch, message, record

BATCHES = [
    batch(b"".join(record(n, value=b"v" * (n * 7 % 90)) for n in range(size)), size, base_offset=at)
    for at, size in ((0, 1), (1, 30), (31, 2), (33, 100), (133, 0), (140, 7))
]


def offsets(path: Path, block: int) -> list[int]:
    return [
        int(offset)
        for part in read_segment(path, block=block)
        for piece in read_records(part.space, part.batches)
        for offset in piece.columns.offset
    ]


def places(path: Path, block: int) -> list[tuple[int, int, bool]]:
    """Position in the file, size, and whether it is cut, of each batch."""
    return [
        (part.position + int(address), int(size), bool(cut))
        for part in read_segment(path, block=block)
        for address, size, cut in zip(
            part.batches.address, part.batches.size, part.batches.truncated, strict=True
        )
    ]


@pytest.mark.parametrize("block", [1, 16, 17, 61, 100, 1_000, 5_000, 1 << 20])
def test_blocks_do_not_show(block: int, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    data = b"".join(BATCHES)
    path.write_bytes(data)
    assert offsets(path, block) == list(range(133)) + list(range(140, 147))
    assert places(path, block) == [
        (each.position, each.size, False) for each in decode_records(data)
    ]
    path.write_bytes(data[:-5])
    assert offsets(path, block) == list(range(133))
    assert places(path, block)[-1] == (len(data) - len(BATCHES[-1]), len(BATCHES[-1]), True)
    path.write_bytes(data + BATCHES[0][:9])
    assert offsets(path, block) == list(range(133)) + list(range(140, 147))
    assert [each.problem for each in decode_records(data + BATCHES[0][:9])][-2:] == [None, None]


@pytest.mark.parametrize("block", [100, 1_000, 5_000, 1 << 20])
@pytest.mark.parametrize("position", [8, 11, 16, 17, 30, 70])
def test_damage_costs_no_other_batch(block: int, position: int, tmp_path: Path) -> None:
    path = tmp_path / "damaged.log"
    bad = bytearray(BATCHES[3])
    bad[position] ^= 0x40
    path.write_bytes(b"".join([*BATCHES[:3], bytes(bad), *BATCHES[4:]]))
    good = [offset for offset in offsets(path, block) if not 33 <= offset < 133]
    assert good == list(range(33)) + list(range(140, 147))
    parts = list(read_segment(path, block=block))
    (problem,) = [problem for part in parts for problem in part.problems]
    is_intact = position in (8, 11)  # of the length
    assert problem.kind == ("bad_length" if is_intact else "damaged_file")
    assert (problem.offset, problem.bytes) == (sum(map(len, BATCHES[:3])), len(bad))


@pytest.mark.parametrize("zeros", [1, 5, 16, 17, 3_000])
def test_preallocated_zeros(zeros: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_segment, "BLOCK", 500)
    path = tmp_path / "preallocated.log"
    path.write_bytes(BATCHES[0] + bytes(zeros))
    for block in (100, 1_000, 5_000):
        assert offsets(path, block) == [0]
        parts = list(read_segment(path, block=block))
        (problem,) = [problem for part in parts for problem in part.problems]
        place = problem.kind, problem.offset, problem.bytes
        assert place == ("zero_bytes", len(BATCHES[0]), zeros)
        assert parts[-1].end == path.stat().st_size


@pytest.mark.parametrize("block", [100, 1_000, 5_000])
def test_zeros_between_batches_are_damage(block: int, tmp_path: Path) -> None:
    path = tmp_path / "damaged.log"
    path.write_bytes(BATCHES[0] + bytes(3_000) + b"".join(BATCHES[1:]))
    assert offsets(path, block) == list(range(133)) + list(range(140, 147))
    problems = [problem for part in read_segment(path, block=block) for problem in part.problems]
    assert {problem.kind for problem in problems} == {"damaged_file"}
    assert sum(problem.bytes or 0 for problem in problems) == 3_000


@pytest.mark.parametrize("block", [1, 100, 1_000, 5_000])
@pytest.mark.parametrize("size", [9, 17, 40, 70])
def test_the_last_batch_is_truncated(block: int, size: int, tmp_path: Path) -> None:
    path = tmp_path / "crashed.log"
    whole = b"".join(BATCHES[:-1])
    path.write_bytes(whole + BATCHES[-1][:size])
    (problem,) = [problem for part in read_segment(path, block=block) for problem in part.problems]
    assert (problem.kind, problem.offset, problem.bytes) == ("truncated_file", len(whole), size)
    assert problem.detail == f"the file ends within the batch that begins at byte {len(whole)}"


def test_nothing_to_read(tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.write_bytes(b"")
    assert list(read_segment(empty)) == []
    with pytest.raises(CaptureError, match="No such file"):
        list(read_segment(tmp_path / "none.log"))


def test_a_batch_too_large_to_believe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_segment, "MAX_BATCH", 4_000)
    path = tmp_path / "large.log"
    large = BATCHES[0][:8] + b"\x7f\xff\xff\xff" + BATCHES[0][12:] + bytes(range(200)) * 100
    path.write_bytes(large + b"".join(BATCHES[1:]))
    parts = list(read_segment(path, block=1_000))
    details = [problem.detail for part in parts for problem in part.problems]
    assert "no end of a batch, within 4,000 bytes" in details[0]
    assert offsets(path, 1_000)[-7:] == list(range(140, 147))


def test_memory_is_that_of_a_block(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    batch = aio_kafka(2, 4, [Entry(1, b"key", b"value" * 100)] * 500)
    with path.open("wb") as file:
        for _ in range(2_000):
            file.write(batch)
    tracemalloc.start()
    count = sum(len(part.batches) for part in read_segment(path, block=1 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 2_000
    assert peak < 8 << 20


def test_names_and_bytes_of_segments() -> None:
    assert is_segment(BATCHES[0])
    assert is_segment(message(0, b"value"))
    assert is_segment(message(1, b"value")[:17])
    assert not is_segment(BATCHES[0][:16])
    assert not is_segment(bytes(100))
    assert not is_segment(b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00" + bytes(16))
    assert not is_segment(b"\x0a\x0d\x0d\x0a" + b"\x1c\x00\x00\x00" + b"\x4d\x3c\x2b\x1a" * 3)

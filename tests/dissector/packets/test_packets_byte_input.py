"""Compressed and piped input: whole, in pieces, cut, damaged, one after the other."""

import contextlib
import gzip
import io
import itertools
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable
from functools import partial

import lz4.frame
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dissector.errors import CaptureError
from dissector.packets import open_packets
from dissector.packets.formats import byte_input
from dissector.packets.formats.byte_input import CHUNK, PIECE, ByteInput
from tests.dissector.packets.packet_bytes import (
    frame,
    ng_enhanced,
    ng_interface,
    ng_section,
    pcap,
    read,
    read_bytes,
    rows_of,
)

PACKETS = [frame(os.urandom(40 + i % 60) + bytes(60), seq=i) for i in range(3000)]
CONTENT = pcap(PACKETS)

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": partial(gzip.compress, compresslevel=1),
    "zstd": zstandard.compress,
    "lz4": lz4.frame.compress,
}
compressed = pytest.mark.parametrize("codec", list(COMPRESS))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return read_bytes(tmp_path_factory.mktemp("plain"), CONTENT)


@compressed
def test_compressed_files_are_known_by_content(tmp_path, codec, plain):
    content = COMPRESS[codec](CONTENT)
    for block_bytes in (1 << 20, 5000):
        reading = read_bytes(tmp_path, content, block_bytes=block_bytes)
        assert reading.rows == plain.rows
        assert reading.problems == []
        assert reading.bytes_read == len(content)


@compressed
def test_streams_one_after_the_other_are_one(tmp_path, codec, plain):
    cuts = [0, 1, 2, 30, 100_000, len(CONTENT)]
    parts = [CONTENT[a:b] for a, b in itertools.pairwise(cuts)]
    reading = read_bytes(tmp_path, b"".join(map(COMPRESS[codec], [*parts, b""])))
    assert reading.rows == plain.rows
    assert reading.problems == []


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_skippable_frames_before_each_frame(tmp_path, codec, plain):
    cuts = [CONTENT[:1000], CONTENT[1000:]]
    parts = [b"\x50\x2a\x4d\x18\x04\0\0\0size" + COMPRESS[codec](each) for each in cuts]
    reading = read_bytes(tmp_path, b"\x5f\x2a\x4d\x18\0\0\0\0" + b"".join(parts))
    assert reading.rows == plain.rows
    assert reading.problems == []


@compressed
def test_a_cut_stream_keeps_what_came_before(tmp_path, codec, plain):
    whole = COMPRESS[codec](CONTENT)
    content = whole[: len(whole) * 2 // 3]
    reading = read_bytes(tmp_path, content)
    assert 1000 < len(reading.rows) < 3000
    assert reading.rows == plain.rows[: len(reading.rows)]
    assert reading.kinds[0] == "damaged_stream"  # the cause comes first
    assert "truncated" in reading.problems[0].detail
    assert reading.bytes_read == len(content)


@compressed
def test_a_damaged_stream_keeps_what_came_before(tmp_path, codec, plain):
    parts = [COMPRESS[codec](CONTENT[:200_000]), COMPRESS[codec](CONTENT[200_000:])]
    damaged = bytearray(b"".join(parts))
    damaged[len(parts[0]) + 2] ^= 0xFF  # in the magic or the flags of the second stream
    reading = read_bytes(tmp_path, bytes(damaged))
    assert reading.rows == plain.rows[: len(reading.rows)]
    assert len(reading.rows) > 1000
    assert "damaged_stream" in reading.kinds


def _with_checksum(codec: str, content: bytes) -> bytes:
    """A stream that ends with a checksum of its content."""
    if codec == "zstd":
        return zstandard.ZstdCompressor(write_checksum=True).compress(content)
    if codec == "lz4":
        return lz4.frame.compress(content, content_checksum=True)
    return gzip.compress(content)[:-4]  # without the size behind the checksum


@compressed
def test_a_wrong_checksum_costs_no_byte(tmp_path, codec, plain):
    content = bytearray(_with_checksum(codec, CONTENT))
    content[-1] ^= 0xFF
    reading = read_bytes(tmp_path, bytes(content))
    assert reading.rows == plain.rows
    assert reading.kinds == ["damaged_stream"]
    assert "damaged" in reading.problems[0].detail


def test_damaged_gzip_costs_no_byte_before_the_damage(tmp_path):
    compressor = zlib.compressobj(wbits=31)
    intact = compressor.compress(CONTENT[:50_000]) + compressor.flush(zlib.Z_FULL_FLUSH)
    reserved = b"\x06"  # a block of type 3 (RFC 1951, section 3.2.3)
    reading = read_bytes(tmp_path, intact + reserved + bytes(100_000))
    expected = read_bytes(tmp_path, CONTENT[:50_000])
    assert reading.rows == expected.rows
    assert reading.kinds == ["damaged_stream", "truncated_file"]


@pytest.mark.parametrize("block_checksum", [False, True])
def test_blocks_of_lz4(tmp_path, plain, block_checksum):
    """Damage costs the block that it is in, and those behind it."""
    options = {"block_size": lz4.frame.BLOCKSIZE_MAX64KB, "block_checksum": block_checksum}
    content = lz4.frame.compress(CONTENT, store_size=True, **options)
    assert read_bytes(tmp_path, content).rows == plain.rows
    header, blocks = 15, []  # magic, flags, size, checksum
    at = header
    while size := int.from_bytes(content[at : at + 4], "little") & 0x7FFFFFFF:
        blocks.append(at)
        at += 4 + size + 4 * block_checksum
    damaged = bytearray(content)
    damaged[blocks[3] + 3] |= 0x7F  # an impossible size
    reading = read_bytes(tmp_path, bytes(damaged))
    expected = read_bytes(tmp_path, CONTENT[: 3 << 16])
    assert reading.rows == expected.rows
    assert reading.kinds[0] == "damaged_stream"


@compressed
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_altered_bytes_of_a_stream_never_raise(tmp_path, codec, data):
    content = bytearray(COMPRESS[codec](CONTENT[:20_000]))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "capture"
    path.write_bytes(content)
    with contextlib.suppress(CaptureError):
        read(path)


@compressed
@pytest.mark.parametrize("chunk", [100, CHUNK])
@pytest.mark.parametrize("missing", [1, 40, 3000])
def test_a_stream_behind_a_truncated_one(tmp_path, monkeypatch, plain, codec, missing, chunk):
    """`cat` joins files, of which a first one may be incomplete. It has other packets."""
    monkeypatch.setattr(byte_input, "CHUNK", chunk)
    first, second = pcap([frame(os.urandom(700))] * 9), COMPRESS[codec](CONTENT)
    content = COMPRESS[codec](first)[:-missing] + second + second[:-missing] + second
    reading = read_bytes(tmp_path, content)
    assert reading.kinds.count("damaged_stream") == 1
    expected = [row.payload for row in plain.rows]
    assert [row.payload for row in reading.rows][-len(expected) :] == expected
    assert reading.payloads.count(expected[3]) >= 2


@compressed
def test_damaged_streams_are_limited(tmp_path, monkeypatch, codec):
    monkeypatch.setattr(byte_input, "STREAMS", 2)
    damaged = COMPRESS[codec](os.urandom(3000))[:-1000]
    content = COMPRESS[codec](CONTENT)
    assert read_bytes(tmp_path, content + damaged + content).payloads
    reading = read_bytes(tmp_path, content + damaged * 3 + content)
    assert reading.rows == read_bytes(tmp_path, content).rows


def test_zeros_behind_gzip_are_padding(tmp_path, plain):
    reading = read_bytes(tmp_path, gzip.compress(CONTENT) + bytes(100_000))
    assert reading.rows == plain.rows
    assert reading.problems == []


def test_junk_behind_gzip_is_a_problem(tmp_path, plain):
    reading = read_bytes(tmp_path, gzip.compress(CONTENT) + b"junk")
    assert reading.rows == plain.rows
    assert reading.kinds == ["damaged_stream"]


@compressed
def test_an_empty_stream(tmp_path, codec):
    with pytest.raises(CaptureError, match="is empty"):
        read_bytes(tmp_path, COMPRESS[codec](b""))


@compressed
@pytest.mark.parametrize("size", [4, 8])
def test_a_stream_cut_within_its_header(tmp_path, codec, size):
    with pytest.raises(CaptureError, match=f"the {codec} stream is truncated"):
        read_bytes(tmp_path, COMPRESS[codec](CONTENT)[:size])


@compressed
def test_decompression_is_bounded_by_what_is_asked_for(tmp_path, codec):
    """Many megabytes of zeros in a few kilobytes do not come at once."""
    path = tmp_path / "bomb"
    path.write_bytes(COMPRESS[codec](bytes(1 << 27)))
    source = ByteInput(str(path))
    got, ended = source.fill(memoryview(bytearray(1000)))
    assert (got, ended) == (1000, False)
    assert len(source._pending) <= 1 << 26
    source.close()


class Pipe:
    """A pipe on standard input of this process, for the time of a test."""

    def __enter__(self) -> "Pipe":
        self._saved = os.dup(0)
        read_end, self._write_end = os.pipe()
        os.dup2(read_end, 0)
        os.close(read_end)
        return self

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._write_end, data) :]

    def end(self) -> None:
        os.close(self._write_end)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._saved, 0)
        os.close(self._saved)


@pytest.mark.parametrize(
    "content",
    [
        pcap(PACKETS[:5]),
        ng_section()
        + ng_interface()
        + b"".join(ng_enhanced(packet, i) for i, packet in enumerate(PACKETS[:5])),
        gzip.compress(pcap(PACKETS[:5])),
    ],
)
def test_byte_by_byte_through_a_pipe_equals_whole(tmp_path, content):
    whole = read_bytes(tmp_path, content)
    with Pipe() as pipe:

        def feed() -> None:
            for at in range(len(content)):
                pipe.write(content[at : at + 1])
                if at % 16 == 0:
                    time.sleep(0.0005)
            pipe.end()

        feeder = threading.Thread(target=feed)
        feeder.start()
        reading = read("-")
        feeder.join()
    assert reading.rows == whole.rows
    assert reading.problems == []
    assert reading.names == ["-"]
    assert reading.bytes_read == len(content)


def test_packets_come_out_while_the_pipe_stays_open():
    with Pipe() as pipe:
        pipe.write(pcap(PACKETS[:3])[:-1])
        source = open_packets(["-"])
        assert source.total_bytes is None
        block = source.read(0)
        assert block is not None
        assert [row.seq for row in rows_of(block)] == [0, 1]
        pipe.end()
        block = source.read(0)
        assert block is not None
        assert [problem.kind for problem in block.problems] == ["truncated_file"]
        assert source.read(0) is None
        source.close()


def test_an_open_capture_is_not_that_of_a_later_standard_input():
    with Pipe() as pipe:
        pipe.write(pcap(PACKETS[:3]))
        pipe.end()
        source = open_packets(["-"])
        with Pipe() as later:
            later.end()
            block = source.read(0)
        assert block is not None
        assert [row.seq for row in rows_of(block)] == [0, 1, 2]
        assert source.read(0) is None
        source.close()


@pytest.mark.parametrize("content", [b"", b"no capture", b"\x1f\x8b"])
def test_a_pipe_that_brings_no_capture(content):
    with Pipe() as pipe:
        pipe.write(content)
        pipe.end()
        with pytest.raises(CaptureError, match="standard input"):
            open_packets(["-"])


def test_a_named_pipe(tmp_path, plain):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    feeder = threading.Thread(target=fifo.write_bytes, args=(CONTENT,))
    feeder.start()
    reading = read(fifo)
    feeder.join()
    assert [row.time for row in reading.rows] == [row.time for row in plain.rows]


def test_standard_input_of_a_process(tmp_path):
    """A file on standard input, and a writer that comes late and made the pipe non-blocking."""
    path = tmp_path / "capture"
    path.write_bytes(CONTENT)
    program = (
        "import os, sys\n"
        "from dissector.packets import open_packets\n"
        "os.set_blocking(0, False)\n"
        "source, rows = open_packets(['-']), 0\n"
        "while (block := source.read(0)) is not None: rows += len(block)\n"
        "print(rows)"
    )
    with path.open("rb") as file:
        command = [sys.executable, "-c", program]
        out = subprocess.run(command, stdin=file, capture_output=True, check=True, timeout=180)
        assert out.stdout == b"3000\n"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        time.sleep(0.3)
        output, _ = process.communicate(CONTENT, timeout=180)
    assert output == b"3000\n"


HEAD = pcap(PACKETS[:3])
BOMBS: dict[str, Callable[[int], bytes]] = {
    "gzip": lambda size: gzip.compress(HEAD + bytes(size)),
    "gzip, many members": lambda size: (
        gzip.compress(HEAD) + gzip.compress(bytes(1 << 22)) * (size >> 22)
    ),
    "zstd": lambda size: zstandard.compress(HEAD + bytes(size), 19),
    "zstd, large window": lambda size: zstd_of_large_window(HEAD + bytes(size)),
    "zstd, many frames": lambda size: (
        zstandard.compress(HEAD) + zstandard.compress(bytes(1 << 22)) * (size >> 22)
    ),
    "lz4": lambda size: lz4.frame.compress(
        HEAD + bytes(size), block_size=lz4.frame.BLOCKSIZE_MAX4MB
    ),
}


def zstd_of_large_window(content: bytes) -> bytes:
    settings = zstandard.ZstdCompressionParameters.from_level(
        3, window_log=27, write_content_size=False
    )
    return zstandard.ZstdCompressor(compression_params=settings).compress(content)


def test_other_bytes_after_a_zstd_frame_are_not_a_large_window(tmp_path):
    content = zstandard.compress(pcap(PACKETS)) + b"\x1f\x8b\x08\x00\x00\xff" + bytes(20)
    damage = read_bytes(tmp_path, content).problems[-1]
    assert damage.kind == "damaged_stream"
    assert "Unknown frame descriptor" in damage.detail


@pytest.mark.parametrize("name", BOMBS)
def test_decompressed_pieces_are_bounded(tmp_path, name):
    """At most a piece and a block of the codec, for any size of the decompressed data."""
    path = tmp_path / "bomb"
    path.write_bytes(BOMBS[name](1 << 27))
    source = ByteInput(str(path))
    target = memoryview(bytearray(1 << 20))
    largest = total = 0
    ended = False
    while not ended:
        got, ended = source.fill(target[:777_777])
        total += got
        largest = max(largest, len(source._pending))
    source.close()
    assert total == len(HEAD) + (1 << 27)
    assert source.damage is None
    assert largest <= PIECE + (4 << 20 if name == "lz4" else 1 << 17)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", BOMBS)
def test_memory_does_not_depend_on_the_decompressed_size(tmp_path, name):
    """NumPy reports its arrays to tracemalloc; the window of zstd and what zlib keeps are not
    among them."""
    path = tmp_path / "bomb"
    path.write_bytes(BOMBS[name](1 << 27))
    tracemalloc.start()
    reading = read(path, block_bytes=1 << 24)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(reading.rows) == 3
    assert "damaged_file" in reading.kinds
    assert peak < 100 << 20


def test_zeros_in_a_pcapng_take_no_more_memory(tmp_path):
    head = ng_section() + ng_interface() + ng_enhanced(PACKETS[0])
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(head + bytes(1 << 26)))
    tracemalloc.start()
    reading = read(path, block_bytes=1 << 24)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(reading.rows) == 1
    assert peak < 100 << 20


def test_a_zstd_window_over_the_limit_is_refused(tmp_path):
    """128 MiB, as the zstd command without --long. A header of a few bytes may ask for more."""
    header = b"\x28\xb5\x2f\xfd\x00" + bytes([18 << 3])  # RFC 8878: 2^(10+18) bytes
    with pytest.raises(CaptureError, match="window is larger than 128 MiB"):
        read_bytes(tmp_path, header + bytes(100))
    reading = read_bytes(tmp_path, zstandard.compress(CONTENT) + header + bytes(100))
    assert len(reading.rows) == len(PACKETS)
    assert "window is larger than 128 MiB" in reading.problems[-1].detail


def test_skippable_frames_of_zstd(tmp_path, plain):
    skipped = b"\x50\x2a\x4d\x18" + (200_000).to_bytes(4, "little") + bytes(200_000)
    parts = [zstandard.compress(CONTENT[:1000]), skipped, zstandard.compress(CONTENT[1000:])]
    reading = read_bytes(tmp_path, b"".join(parts))
    assert reading.rows == plain.rows
    assert reading.problems == []


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_zstd_blocks_in_pieces(tmp_path, monkeypatch, plain, checksum, chunk):
    """Frames of many blocks, with and without content size and checksum, read a few bytes at a
    time."""
    packed = io.BytesIO()
    press = zstandard.ZstdCompressor(write_checksum=checksum)
    with press.stream_writer(packed, closefd=False) as writer:
        for at in range(0, len(CONTENT), 30_000):
            writer.write(CONTENT[at : at + 30_000])
            writer.flush(zstandard.FLUSH_BLOCK)
    content = packed.getvalue()
    monkeypatch.setattr(byte_input, "CHUNK", chunk)
    reading = read_bytes(tmp_path, content)
    assert reading.rows == plain.rows
    assert reading.problems == []

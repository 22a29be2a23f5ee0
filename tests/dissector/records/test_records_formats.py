"""Rules of the formats, as literal bytes."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import snappy
import xxhash
import zstandard
from kafka.record.memory_records import MemoryRecords

from dissector.errors import DecodeError
from dissector.records.codecs import Limits, decompress, with_valid_checksum
from dissector.records.decode import Batch, Record, decode_records
from tests.dissector.records.records_writers import batch, message, record
from tests.kafka_bytes import varint

EXAMPLE = bytes.fromhex(
    "0000000000000064"  # base offset 100
    "0000004a"  # 74 bytes follow
    "00000007"  # leader epoch 7
    "02"  # magic
    "3823ae89"  # CRC-32C of the following bytes
    "0010"  # attributes: transactional
    "00000000"  # last offset delta
    "0000018bcfe56800"  # base timestamp 1,700,000,000,000
    "0000018bcfe56800"  # max timestamp
    "00000000000003e9"  # producer id 1001
    "0002"  # producer epoch 2
    "00000005"  # base sequence 5
    "00000001"  # one record
    "30"  # its length, 24
    "000000"  # attributes, timestamp delta, offset delta
    "066b6579"  # key
    "0a76616c7565"  # value
    "04"  # two headers
    "026108c3a9c3a9"  # a: éé
    "026201"  # b: null
)
XERIAL = (
    b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    b"\x00\x00\x00\x18\xac\x02\x14SNAPPY\xfe\x06\x00\xfe\x06\x00\xfe\x06\x00\xfe\x06\x00\x96\x06\x00"
    b"\x00\x00\x00\x18\xac\x02\x14XERIAL\xfe\x06\x00\xfe\x06\x00\xfe\x06\x00\xfe\x06\x00\x96\x06\x00"
)
LZ4_OF_MAGIC_0 = bytes.fromhex("04224d1860401a0e000000566b61666b610500506b61666b6100000000")
"""b"kafka" * 4; the header checksum, 1a, is that of 04224d186040, where that of 6040 is 82."""


def only(data: bytes) -> Batch:
    """The only batch of the data, which has no problem."""
    (decoded,) = decode_records(data)
    assert decoded.crc_ok
    assert decoded.problem is None
    return decoded


def test_every_field_of_a_batch() -> None:
    assert MemoryRecords(EXAMPLE).next_batch().validate_crc()
    assert only(EXAMPLE) == Batch(
        position=0, size=86, magic=2, base_offset=100, last_offset=100, record_count=1,
        codec="none", timestamp_type="create_time", base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_000, leader_epoch=7, producer_id=1001, producer_epoch=2,
        base_sequence=5, is_transactional=True, is_control=False, has_delete_horizon=False,
        crc=0x3823AE89, crc_ok=True, truncated=False, problem=None,
        records=(
            Record(100, 1_700_000_000_000, b"key", b"value", (("a", "éé".encode()), ("b", None))),
        ),
    )  # fmt: skip


def test_header_keys_may_repeat_be_empty_and_be_no_text() -> None:
    headers = [(b"a", b"1"), (b"a", b""), (b"", None), (b"\xff\xfe", b"\x00")]
    decoded = only(batch(record(headers=headers), 1))
    assert decoded.records[0].headers == (
        ("a", b"1"),
        ("a", b""),
        ("", None),
        (b"\xff\xfe", b"\x00"),
    )


def test_null_and_empty_are_not_the_same() -> None:
    payload = record(0, key=None, value=b"") + record(1, key=b"", value=None)
    decoded = only(batch(payload, 2))
    assert [(each.key, each.value) for each in decoded.records] == [(None, b""), (b"", None)]


def test_deltas_may_be_negative_and_long() -> None:
    deltas = [0, -1, 63, -64, 64, -65, 8191, 8192, 1 << 31, -(1 << 31), 1 << 61, -(1 << 61)]
    payload = b"".join(record(number, delta) for number, delta in enumerate(deltas))
    decoded = only(batch(payload, len(deltas), base_timestamp=5_000))
    assert [each.timestamp - 5_000 for each in decoded.records] == deltas


def test_a_varint_may_be_longer_than_it_must() -> None:
    body = b"\x00" + b"\x80\x00" + b"\x82\x80\x80\x00" + b"\x01" + b"\x82\x00v" + b"\x80\x00"
    decoded = only(batch(varint(len(body)) + body, 1))
    assert decoded.records == (Record(1, 0, None, b"v"),)


def test_offsets_of_a_compacted_batch() -> None:
    payload = record(3) + record(70_000)
    decoded = only(batch(payload, 2, base_offset=1 << 40, last_delta=80_000))
    assert [each.offset - (1 << 40) for each in decoded.records] == [3, 70_000]
    assert (decoded.record_count, decoded.last_offset - decoded.base_offset) == (2, 80_000)


def test_an_empty_batch_keeps_its_offsets() -> None:
    decoded = only(batch(b"", 0, base_offset=5, last_delta=9, producer=(1, 0, 3)))
    assert (decoded.records, decoded.base_offset, decoded.last_offset) == ((), 5, 14)


def test_log_append_time_is_that_of_all_records() -> None:
    payload = record(0, 10) + record(1, 20)
    decoded = only(batch(payload, 2, attributes=0x08, base_timestamp=1, max_timestamp=777))
    assert decoded.timestamp_type == "log_append_time"
    assert [each.timestamp for each in decoded.records] == [777, 777]


def test_with_a_delete_horizon_timestamps_count_from_it() -> None:
    payload = record(0, -400) + record(1, -100)
    decoded = only(batch(payload, 2, attributes=0x40, base_timestamp=1_000, max_timestamp=900))
    assert decoded.has_delete_horizon
    assert [each.timestamp for each in decoded.records] == [600, 900]


def test_no_timestamp() -> None:
    decoded = only(batch(record(), 1, base_timestamp=-1, max_timestamp=-1))
    assert decoded.records[0].timestamp == -1


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (0, "abort"),
        (1, "commit"),
        (2, "leader_change"),
        (3, "snapshot_header"),
        (4, "snapshot_footer"),
        (5, "kraft_version"),
        (6, "kraft_voters"),
        (7, "control_7"),
    ],
)
def test_control_records(number: int, kind: str) -> None:
    marker = record(key=struct.pack(">hh", 0, number), value=struct.pack(">hi", 0, 12))
    decoded = only(batch(marker, 1, attributes=0x30))
    assert (decoded.is_control, decoded.is_transactional) == (True, True)
    assert decoded.records[0].kind == kind
    plain = only(batch(marker, 1, attributes=0x10))
    assert plain.records[0].kind is None


def test_a_control_record_without_a_type() -> None:
    for key in (None, b"", b"\x00\x00\x00"):
        assert only(batch(record(key=key), 1, attributes=0x20)).records[0].kind is None


def test_messages_of_magic_0_and_1() -> None:
    old = message(0, b"value", b"key", offset=7)
    new = message(1, None, None, offset=8, timestamp=123)
    appended = message(1, b"", b"", offset=9, timestamp=456, attributes=0x08)
    first, second, third = decode_records(old + new + appended)
    assert first.records == (Record(7, -1, b"key", b"value"),)
    assert second.records == (Record(8, 123, None, None),)
    assert third.records == (Record(9, 456, b"", b""),)
    assert [each.timestamp_type for each in (first, second, third)] == [
        None, "create_time", "log_append_time",
    ]  # fmt: skip
    assert [each.crc_ok for each in (first, second, third)] == [True] * 3


def test_offsets_within_a_wrapper() -> None:
    old = b"".join(message(0, b"%d" % offset, offset=offset) for offset in (40, 41, 43))
    decoded = only(message(0, gzip.compress(old), offset=43, attributes=1))
    assert [each.offset for each in decoded.records] == [40, 41, 43]  # magic 0: absolute
    assert (decoded.base_offset, decoded.last_offset, decoded.record_count) == (-1, 43, -1)

    relative = [message(1, b"", offset=offset, timestamp=offset) for offset in (0, 1, 3)]
    packed = gzip.compress(b"".join(relative))
    decoded = only(message(1, packed, offset=1003, attributes=1, timestamp=3))
    assert [each.offset for each in decoded.records] == [1000, 1001, 1003]  # KIP-31
    assert [each.timestamp for each in decoded.records] == [0, 1, 3]
    assert (decoded.base_timestamp, decoded.max_timestamp) == (-1, 3)  # KIP-32: the largest
    decoded = only(message(1, packed, offset=0, attributes=1, timestamp=3))
    assert [each.offset for each in decoded.records] == [0, 1, 3]  # not yet set by a broker


def test_log_append_time_of_a_wrapper() -> None:
    packed = gzip.compress(message(1, b"a", timestamp=1) + message(1, b"b", offset=1, timestamp=2))
    decoded = only(message(1, packed, offset=1, attributes=0x09, timestamp=999))
    assert [each.timestamp for each in decoded.records] == [999, 999]
    assert (decoded.base_timestamp, decoded.max_timestamp) == (999, 999)


def test_a_wrapped_set_that_is_cut() -> None:
    inner = message(1, b"whole") + message(1, b"cut", offset=1)[:-2]
    (decoded,) = decode_records(message(1, gzip.compress(inner), offset=1, attributes=1))
    assert [each.value for each in decoded.records] == [b"whole"]
    assert "messages end at byte" in (decoded.problem or "")


def unpacked(codec: int, data: bytes, magic: int = 2) -> bytes:
    return decompress(codec, memoryview(data), Limits(), magic=magic)


def test_xerial_framing() -> None:
    assert unpacked(2, XERIAL) == b"SNAPPY" * 50 + b"XERIAL" * 50
    assert unpacked(2, XERIAL[:16]) == b""
    little_endian = XERIAL[:8] + b"\x01\x00\x00\x00\x01\x00\x00\x00" + XERIAL[16:]  # Redpanda
    assert unpacked(2, little_endian) == b"SNAPPY" * 50 + b"XERIAL" * 50


@pytest.mark.parametrize("block", [1, 100, 32 << 10, 1 << 20])
def test_xerial_blocks_of_any_size(block: int) -> None:
    data = bytes(range(256)) * 3_000
    if block < 100:
        data = data[:1_000]
    framed = XERIAL[:16]
    for at in range(0, len(data), block):
        packed = snappy.compress(data[at : at + block])
        framed += struct.pack(">i", len(packed)) + packed
    assert unpacked(2, framed) == data
    assert unpacked(2, snappy.compress(data)) == data


@pytest.mark.parametrize("pack", [snappy.compress, pa.Codec("snappy").compress])
@pytest.mark.parametrize("size", [0, 1, 60, 61, 5_000, (64 << 10) + 1, 300_000])
def test_snappy_of_other_writers(pack: Callable[[bytes], bytes], size: int) -> None:
    """python-snappy calls cramjam, as the dissector does. Arrow has Google's library."""
    noise = np.random.default_rng(size).integers(0, 256, size // 3, np.uint8).tobytes()
    data = (noise + bytes(size) + noise)[:size]
    packed = bytes(pack(data))
    assert unpacked(2, packed) == data
    assert snappy.uncompress(packed) == data
    assert pa.Codec("snappy").decompress(packed, len(data), asbytes=True) == data


@pytest.mark.parametrize("length", [-1, 0, 25, 1 << 30])
def test_xerial_blocks_that_are_not_there(length: int) -> None:
    with pytest.raises(DecodeError, match=f"a block has {length} bytes but 24 are left"):
        unpacked(2, XERIAL[:44] + struct.pack(">i", length) + XERIAL[48:])


def test_the_header_checksum_of_old_lz4() -> None:
    assert unpacked(3, LZ4_OF_MAGIC_0, magic=0) == b"kafka" * 4
    for magic in (1, 2):
        with pytest.raises(DecodeError, match="damaged lz4 data"):
            unpacked(3, LZ4_OF_MAGIC_0, magic=magic)
    inner = message(0, b"old", offset=3)
    right = bytearray(lz4.frame.compress(inner, store_size=False))
    right[6] = xxhash.xxh32(bytes(right[:6])).intdigest() >> 8 & 0xFF
    assert only(message(0, bytes(right), offset=3, attributes=3)).records[0].value == b"old"


@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("block", [4, 5, 6, 7])
@pytest.mark.parametrize("checksum", [False, True])
def test_the_right_header_checksum(
    store_size: bool, linked: bool, block: int, checksum: bool
) -> None:
    frame = lz4.frame.compress(
        b"data" * 100, store_size=store_size, block_linked=linked, block_size=block,
        content_checksum=checksum, block_checksum=checksum,
    )  # fmt: skip
    end = 14 if store_size else 6
    damaged = frame[:end] + bytes([frame[end] ^ 0x55]) + frame[end + 1 :]
    assert with_valid_checksum(memoryview(damaged)) == frame


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_data_of_several_frames(codec: int) -> None:
    pack = {1: gzip.compress, 3: lz4.frame.compress, 4: zstandard.compress}[codec]
    assert unpacked(codec, pack(b"one") + pack(b"") + pack(b"two" * 99_999)) == (
        b"one" + b"two" * 99_999
    )


@pytest.mark.parametrize("surplus", [b"\0", b"\0" * 40, b"other bytes" * 9])
@pytest.mark.parametrize("codec", [1, 3])
def test_bytes_after_compressed_data_are_ignored(codec: int, surplus: bytes) -> None:
    """Kafka's consumers ignore them, except after zstd."""
    pack = {1: gzip.compress, 3: lz4.frame.compress}[codec]
    data = b"one" * 99
    assert unpacked(codec, pack(data) + surplus) == data
    assert unpacked(codec, pack(data) + pack(data) + surplus) == data * 2
    with pytest.raises(DecodeError, match="damaged"):
        unpacked(codec, surplus)


def test_xerial_streams_one_after_the_other() -> None:
    assert unpacked(2, XERIAL * 2) == (b"SNAPPY" * 50 + b"XERIAL" * 50) * 2


def test_frames_without_a_content_size() -> None:
    data = bytes(range(256)) * 40_000
    assert unpacked(4, zstandard.ZstdCompressor(write_content_size=False).compress(data)) == data
    assert unpacked(3, lz4.frame.compress(data, store_size=False)) == data


@pytest.mark.parametrize("size", [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 1 << 18])
def test_zstd_frames_that_end_where_a_step_does(size: int) -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(b"a" * size)
    assert unpacked(4, packed) == b"a" * size
    assert unpacked(4, packed + zstandard.compress(b"") + packed) == b"a" * size * 2


@pytest.mark.parametrize("has_checksum", [False, True])
def test_truncated_zstd_frames(has_checksum: bool) -> None:
    """Wherever they are cut; with repeated bytes, and a skippable frame before them."""
    compressor = zstandard.ZstdCompressor(write_checksum=has_checksum)
    content = bytes(300_000) + b"".join(map(b"%d".__mod__, range(60_000)))
    packed = b"\x5a\x2a\x4d\x18\x02\0\0\0ab" + compressor.compress(content)
    assert unpacked(4, packed) == content
    for size in [*range(9), *range(11, len(packed), 997), *range(len(packed) - 9, len(packed))]:
        with pytest.raises(DecodeError, match="damaged zstd data"):
            unpacked(4, packed[:size])


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_the_limit_is_the_last_size_that_may_come(codec: int) -> None:
    pack = {1: gzip.compress, 2: snappy.compress, 3: lz4.frame.compress, 4: zstandard.compress}
    data = memoryview(pack[codec](b"record" * 1_000))
    assert len(decompress(codec, data, Limits(6_000, 1, 6_000))) == 6_000
    with pytest.raises(DecodeError, match="more than the limit of 5,999 bytes"):
        decompress(codec, data, Limits(5_999, 1, 5_999))


def test_there_are_four_codecs() -> None:
    for codec in (0, 5, 6, 7):
        with pytest.raises(DecodeError, match=f"unknown codec number {codec}"):
            unpacked(codec, zlib.compress(b""))

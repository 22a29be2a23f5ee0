"""Tables do not depend on how much of a capture is read at once.

Rows are compared without their order: those of a block are in order of time, and an exchange whose
end is in a later block comes later. `SLOW=1` reads every recording in blocks of every size, which
takes 20 minutes.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from dissector.packets import open_packets
from dissector.packets.formats.pcapng import SECRETS
from dissector.pipeline import Pipeline
from dissector.problems import LATE_SECRETS
from dissector.tables import TABLES
from tests.captures.recorded import CAPTURES, RECORDINGS
from tests.dissector.runs.cutting import differences
from tests.robustness.robustness_damage import recording

PACKET = 40
"""Bytes of a block of one packet: with its header in the file, each packet takes more."""
SMALL, MEDIUM, LARGE, DEFAULT = 3_000, 12_000, 64 << 10, 32 << 20
MOST_BYTES = {PACKET: 26_000, SMALL: 60_000, MEDIUM: 0, LARGE: 1 << 30}
"""Size of the recordings that are read in these blocks. Larger ones take too long."""
DAMAGED = ("cut-snaplen", "net-loss", "tls-secrets")
"""Parts of the names of larger recordings that are read in blocks of medium size."""


def cases() -> list[tuple[str, int]]:
    """Names of recordings, and the bytes of a block."""
    sizes = {path.name: len(recording(path).data) for path in RECORDINGS}
    return [
        (name, block_bytes)
        for name, size in sizes.items()
        for block_bytes, most in MOST_BYTES.items()
        if os.environ.get("SLOW")
        or size <= most
        or (block_bytes == MEDIUM and any(part in name for part in DAMAGED))
    ]


def tables(path: Path, block_bytes: int) -> dict[str, pa.Table]:
    """All tables of a capture, read in blocks of this size."""
    return Pipeline(open_packets([path], block_bytes=block_bytes), []).tables(list(TABLES))


@cache
def expected(name: str) -> dict[str, pa.Table]:
    return tables(CAPTURES / name, DEFAULT)


def rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


@pytest.mark.parametrize("block_bytes", [700, 5_000, 50_000])
def test_blocks_of_a_larger_recording(block_bytes: int) -> None:
    assert_same_rows("kafka-4-java.pcap.zst", block_bytes)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("name", "block_bytes"), cases())
def test_blocks_of_any_size_give_the_same_rows(name: str, block_bytes: int) -> None:
    assert_same_rows(name, block_bytes)


def assert_same_rows(name: str, block_bytes: int) -> None:
    actual = tables(CAPTURES / name, block_bytes)
    for table, whole in expected(name).items():
        if not whole.equals(actual[table]):
            expected_rows, actual_rows = rows(whole), rows(actual[table])
            missing, surplus = expected_rows - actual_rows, actual_rows - expected_rows
            assert (table, missing, surplus) == (table, Counter(), Counter())


@pytest.mark.parametrize(("block_bytes", "is_late"), [(MEDIUM, True), (DEFAULT, False)])
def test_secrets_behind_the_packets_of_their_sessions(
    block_bytes: int, is_late: bool, tmp_path: Path
) -> None:
    """The packets are read once: later secrets are reported, and decrypt the rest of the file."""
    data, blocks = recording(CAPTURES / "kafka-4-tls-secrets.pcapng.zst").data, []
    while data:
        size = int.from_bytes(data[4:8], "little")
        blocks.append(data[:size])
        data = data[size:]
    blocks.sort(key=lambda block: int.from_bytes(block[:4], "little") == SECRETS)
    path = tmp_path / "late.pcapng"
    path.write_bytes(b"".join(blocks))
    read = tables(path, block_bytes)
    protocols = read["connections"]["protocol"].to_pylist()
    assert ("tls" in protocols) == is_late
    assert (LATE_SECRETS in read["problems"]["detail"].to_pylist()) == is_late


def test_a_block_may_have_one_packet() -> None:
    source = open_packets([CAPTURES / "kafka-4-net-loss.pcap.zst"], block_bytes=PACKET)
    counts = []
    while (block := source.read(0)) is not None:
        counts.append(block.packets_seen)
    assert set(counts) == {1}


@pytest.mark.parametrize("has_secrets", [True, False])
def test_problems_of_encrypted_connections_do_not_depend_on_blocks(
    tmp_path: Path, has_secrets: bool
) -> None:
    """Half of a capture, without 3 % of the packets; a key log of these or of other connections."""
    whole, chance = recording(CAPTURES / "kafka-4-tls.pcap.zst"), random.Random(3)
    lossy, keys = tmp_path / "lossy.pcap", tmp_path / "other.log"
    half = range(len(whole.begin) // 2)
    lossy.write_bytes(whole.made_of([number for number in half if chance.random() > 0.03]))
    keys.write_text(f"CLIENT_RANDOM {'ab' * 32} {'cd' * 48}\n")

    def read(block_bytes: int) -> dict[str, Counter[str]]:
        source = open_packets([lossy], block_bytes=block_bytes)
        keylog = CAPTURES / "kafka-4-tls.keys.log" if has_secrets else keys
        read_tables = Pipeline(source, [], keylog=keylog).tables(["exchanges", "problems"])
        return {name: rows(table) for name, table in read_tables.items()}

    expected_rows = read(DEFAULT)
    assert any("tls_" in row for row in expected_rows["problems"])
    assert read(PACKET) == read(SMALL) == expected_rows


@pytest.mark.parametrize("name", ["chatter-mock.pcap.zst", "kafka-4-java.pcap.zst"])
def test_rows_of_a_lossy_capture_do_not_depend_on_blocks(tmp_path: Path, name: str) -> None:
    """Without 2 % of the packets."""
    whole, chance = recording(CAPTURES / name), random.Random(5)
    lossy = tmp_path / "lossy.pcap"
    lossy.write_bytes(whole.made_of([n for n in range(len(whole.begin)) if chance.random() > 0.02]))

    whole_tables = tables(lossy, DEFAULT)
    assert "lost_bytes" in whole_tables["problems"]["kind"].to_pylist()
    assert not differences(whole_tables, tables(lossy, 50_000))

"""Reading ahead changes nothing but the time that it takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dissector import open_capture
from dissector.packets import open_packets, prefetch
from dissector.packets.block import PacketBlock
from dissector.packets.formats.capture_reader import Memory
from dissector.tables import TABLES
from tests.captures.recorded import CAPTURES
from tests.dissector.packets.packet_bytes import (
    frame,
    ng_block,
    ng_enhanced,
    ng_interface,
    ng_section,
    pcap_header,
    pcap_record,
)

BLOCK = 100_000


def block_contents(source: prefetch.ReadAhead | object, reserve: int) -> list[object]:
    """All columns of the blocks, with the bytes of each packet. Overwrites each reserve."""
    contents: list[object] = []
    while (block := source.read(reserve)) is not None:
        assert isinstance(block, PacketBlock)
        assert block.reserve == reserve
        block.data[:reserve] = 255
        payloads = zip(block.payload.tolist(), block.captured.tolist(), strict=True)
        contents.append([block.data[at : at + size].tobytes() for at, size in payloads])
        contents.append([block.time.tolist(), block.seq.tolist(), block.number.tolist()])
        contents.append([block.packets_seen, block.bytes_read, block.problems])
    source.close()
    return contents


@pytest.mark.parametrize("reserve", [0, 1000, 5000])
@pytest.mark.parametrize("damage", [0, 250_000])
def test_the_blocks_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reserve: int, damage: int
) -> None:
    monkeypatch.setattr(prefetch, "FRONT", 2000)
    records = [pcap_record(frame(bytes([n % 256]) * 100, seq=n)) for n in range(5000)]
    content = bytearray(pcap_header() + b"".join(records))
    content[damage : damage + 3000] = bytes(3000) if damage else content[:3000]
    path = tmp_path / "many.pcap"
    path.write_bytes(content)
    source = open_packets([path], block_bytes=BLOCK)
    assert prefetch.helps(source)
    plain = block_contents(open_packets([path], block_bytes=BLOCK), reserve)
    assert len(plain) > 9
    assert block_contents(prefetch.ReadAhead(source), reserve) == plain


def test_a_pipe_and_a_small_file_are_not_read_ahead() -> None:
    assert not prefetch.helps(None)
    assert not prefetch.helps(open_packets([CAPTURES / "kafka-python-mock.pcap"]))


def test_many_small_files_are_not_read_ahead(tmp_path: Path) -> None:
    """Python's own work would be most of the time of both threads."""
    for number in range(200):
        content = pcap_header() + pcap_record(frame(bytes(1500), seq=number))
        (tmp_path / f"{number}.pcap").write_bytes(content)
    assert not prefetch.helps(open_packets([tmp_path], block_bytes=BLOCK))


def test_secrets_come_with_the_block_after_them(tmp_path: Path) -> None:
    """Else what is decrypted when would depend on how fast a thread is."""
    content = ng_section() + ng_interface()
    blocks = [ng_enhanced(frame(bytes(100), seq=n), n) for n in range(4000)]
    text = b"CLIENT_RANDOM 00 00\n"
    secrets = ng_block(
        10, 0x544C534B.to_bytes(4, "little") + len(text).to_bytes(4, "little") + text
    )
    content += b"".join([*blocks[:3000], secrets, *blocks[3000:]])
    path = tmp_path / "late.pcapng"
    path.write_bytes(content)
    source = prefetch.ReadAhead(open_packets([path], block_bytes=BLOCK))
    seen = 0
    while (block := source.read(0)) is not None:
        seen += len(block)
        assert source.secrets == ([text] if seen > 3000 else [])
    assert seen == 4000


def test_an_end_in_the_middle_gives_back_the_file(tmp_path: Path) -> None:
    path = tmp_path / "many.pcap"
    path.write_bytes(pcap_header() + pcap_record(frame(bytes(100))) * 5000)
    source = prefetch.ReadAhead(open_packets([path], block_bytes=BLOCK))
    assert source.read(0) is not None
    source.close()
    with pytest.raises(RuntimeError):
        source.read(0)


def test_tables_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through `open_capture`, whose blocks are made small."""
    path = CAPTURES / "bulk-tansu.pcap.zst"
    whole = open_capture([path]).tables()
    used = []

    class Counted(prefetch.ReadAhead):
        def read(self, reserve: int) -> PacketBlock | None:
            used.append(reserve)
            return super().read(reserve)

    monkeypatch.setattr("dissector.capture.BLOCK_BYTES", path.stat().st_size // 2)
    monkeypatch.setattr(prefetch, "ReadAhead", Counted)
    parts = open_capture([path]).tables()
    assert len(used) > 2
    assert any(used)
    for name in TABLES.keys() & whole.keys():
        assert (
            parts[name]
            .sort_by(list(_keys(parts[name])))
            .equals(whole[name].sort_by(list(_keys(whole[name]))))
        )


def _keys(table: object) -> list[tuple[str, str]]:
    names = ("time", "connection_id", "correlation_id", "partition", "topic")
    return [(name, "ascending") for name in names if name in table.column_names]


def test_memory_is_used_again_when_nothing_refers_to_it() -> None:
    memory = Memory(2)
    first, second = memory.take(1000), memory.take(1000)
    assert not np.shares_memory(first, second)
    view = second[10:20].view(np.uint16)
    place = first.__array_interface__["data"]
    del first, second
    assert memory.take(900).__array_interface__["data"] == place
    third, fourth = memory.take(900), memory.take(900)
    assert not np.shares_memory(third, view)
    assert not np.shares_memory(fourth, view)

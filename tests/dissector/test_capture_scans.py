"""Port scans and floods of SYNs: each is a row, and costs a few dozen bytes."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dissector
from dissector.streams.connections import parking
from dissector.streams.connections.parking import Parking
from tests.dissector.test_work_guard import Counter
from tests.programs import PRINT_PEAK, printed

SYN, RST, ACK = 2, 4, 16
_PACKET = np.dtype(
    [
        ("seconds", "<u4"), ("micros", "<u4"), ("captured", "<u4"), ("length", "<u4"),
        ("version", "u1"), ("service", "u1"), ("total", ">u2"), ("rest", ">u4"), ("ttl", "u1"),
        ("protocol", "u1"), ("checksum", ">u2"), ("source", ">u4"), ("target", ">u4"),
        ("source_port", ">u2"), ("target_port", ">u2"), ("seq", ">u4"), ("ack", ">u4"),
        ("offset", "u1"), ("flags", "u1"), ("window", ">u2"), ("end", ">u4"),
    ]
)  # fmt: skip
"""A record of a pcap file with IPv4 and TCP headers."""


def packets(count: int) -> np.ndarray:
    headers = np.zeros(count, _PACKET)
    index = np.arange(count)
    headers["seconds"], headers["micros"] = 1_700_000_000 + index // 50_000, index % 50_000 * 20
    headers["captured"] = headers["length"] = headers["total"] = 40
    headers["version"], headers["ttl"], headers["protocol"], headers["offset"] = 0x45, 64, 6, 0x50
    return headers


def write(path: Path, rows: np.ndarray) -> Path:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101)
    path.write_bytes(head + rows.tobytes())
    return path


def flood(path: Path, count: int) -> Path:
    """A SYN from each of `count` addresses."""
    rows = packets(count)
    rows["source"] = 0x0A000000 + np.arange(count)
    rows["target"], rows["source_port"], rows["target_port"] = 0xC0A80001, 40_000, 9092
    rows["seq"], rows["flags"] = np.arange(count) * 7, SYN
    return write(path, rows)


def scan(path: Path, connections: int) -> Path:
    """Of one address: SYN, SYN and ACK, RST of each port, the answers a thousand packets later."""
    index, step = np.divmod(np.arange(3 * connections), 3)
    rows = packets(3 * connections)
    is_client = step != 1
    port, client, server = 1024 + index % 60_000, 0x0A000001 + index // 60_000, 0xC0A80001
    rows["source"] = np.where(is_client, client, server)
    rows["target"] = np.where(is_client, server, client)
    rows["source_port"] = np.where(is_client, port, 9092)
    rows["target_port"] = np.where(is_client, 9092, port)
    rows["flags"] = np.array([SYN, SYN | ACK, RST])[step]
    rows["seq"] = np.where(is_client, index * 7 + (step == 2), index * 11)
    rows["ack"] = np.where(step == 1, index * 7 + 1, 0)
    rows = rows[np.argsort(np.arange(len(rows)) + 1_000 * step, kind="stable")]
    rows["seconds"], rows["micros"] = packets(len(rows))["seconds"], packets(len(rows))["micros"]
    return write(path, rows)


def connections(path: Path) -> pa.Table:
    return dissector.open_capture(path, memory=8 << 20).tables(["connections"])["connections"]


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Connections that are packed, and their bytes, after each block."""
    seen: list[tuple[int, int]] = []
    park = Parking.park

    def watched(self: Parking, *arguments: object) -> None:
        park(self, *arguments)  # type: ignore[arg-type]
        arrays = [
            array
            for tables in self._packed.values()
            for _, columns in tables
            for smallest, above in columns.values()
            for array in (smallest, *above)
            if array is not None
        ]
        seen.append((len(self._packed) * parking.CHUNK, sum(each.nbytes for each in arrays)))

    monkeypatch.setattr(Parking, "park", watched)
    return seen


@pytest.mark.parametrize("made", [flood, scan])
def test_a_connection_without_data_takes_a_few_dozen_bytes(
    made: object, tmp_path: Path, packed: list[tuple[int, int]]
) -> None:
    path = made(tmp_path / "scan.pcap", 50_000)  # type: ignore[operator]
    rows = connections(path)
    count, size = max(packed)
    assert count > 40_000
    assert size / count < 60
    assert len(rows) == 50_000


@pytest.mark.parametrize("made", [flood, scan])
def test_packing_changes_no_row(
    made: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "scan.pcap", 40_000)  # type: ignore[operator]
    rows = connections(path)
    monkeypatch.setattr(Parking, "park", lambda *arguments: None)
    assert rows.equals(connections(path))
    assert rows["connection_id"].to_pylist() == list(range(40_000))
    assert rows["protocol"].unique().to_pylist() == ["unknown"]
    assert rows["client_ip"][0].as_py() == ("10.0.0.0" if made is flood else "10.0.0.1")
    if made is scan:
        for name, expected in (("client_packets", 2), ("broker_packets", 1), ("closed", "rst")):
            assert rows[name].unique().to_pylist() == [expected]


def test_a_packed_connection_goes_on(tmp_path: Path) -> None:
    """SYNs, many others again, then what ends three handshakes."""
    count = 30_000
    first = packets(count)
    first["source"], first["target"] = 0x0A000000 + np.arange(count), 0xC0A80001
    first["source_port"], first["target_port"] = 40_000, 9092
    first["seq"], first["flags"] = 100, SYN
    order = np.arange(count)
    all_packets = first[np.concatenate([order, order[100:], order[:3]])]
    late = all_packets[-3:]
    late["seconds"] += 1
    late["flags"], late["seq"], late["ack"] = ACK, 101, 1
    path = write(tmp_path / "late.pcap", all_packets)
    rows = connections(path)
    assert len(rows) == count
    earliest = rows.slice(0, 4)
    assert earliest["client_packets"].to_pylist() == [2, 2, 2, 1]
    assert earliest["handshake_rtt_ms"].is_null().to_pylist() == [False] * 3 + [True]
    assert earliest["last_time"][0].value > earliest["first_time"][0].value


def test_calls_do_not_grow_with_connections(tmp_path: Path) -> None:
    calls = []
    for count in (20_000, 40_000):
        path = flood(tmp_path / f"{count}.pcap", count)
        counter = Counter()
        sys.setprofile(counter)
        try:
            for _ in dissector.open_capture(path, memory=32 << 20).stream(["connections"]):
                pass
        finally:
            sys.setprofile(None)
        calls.append(sum(counter.calls.values()))
    assert calls[1] - calls[0] < 20_000, "more than a call for each connection"


def test_the_peak_of_a_flood(tmp_path: Path) -> None:
    """Python and its libraries take about 120 MB, a block of packets 100 MB."""
    path = flood(tmp_path / "flood.pcap", 400_000)
    code = (
        "import sys; from analysis.summary.counts import Summary; import dissector\n"
        "summary = Summary()\n"
        "summary.read(dissector.open_capture(sys.argv[1]).stream(Summary.TABLES))\n"
        "print(summary.totals().protocols['unknown'])\n"
    )
    count, peak = map(int, printed(code + PRINT_PEAK, path).split())
    assert count == 400_000
    assert peak >> 10 < 400, "a full row each would take more"

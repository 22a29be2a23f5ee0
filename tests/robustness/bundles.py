"""Many copies of a recording in one capture.

Opening a capture takes longer than reading a small one. So copies are read together: each has
addresses of its own, and begins `PAUSE` seconds behind the one before. Nothing else relates them.

Only pcap files are bundled, and only copies with whole records and right times: others would affect
the copies behind them.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.packets import open_packets
from tests.robustness.robustness_damage import Recording
from tests.robustness.robustness_truth import capture_file

PAUSE = 120
"""Seconds between copies: more than any stream waits."""
COPIES = 120
"""Most copies in a bundle. A byte of each address has their number; if all bits of it are inverted,
it is no such number."""
PACKETS = 100_000
"""Most packets in a bundle of more than one copy."""
HEADER, RECORD = 24, 16
"""Bytes of the header of a pcap file, and of a packet."""
_MAGIC = (0xA1B2C3D4, 0xA1B23C4D)
_ENDS = "src_high", "src_low", "dst_high", "dst_low"
_NUMBERS = (
    "client_port", "broker_port", "api_key", "api_version", "correlation_id", "request_bytes",
    "response_bytes", "error_code",
)  # fmt: skip
_TIMES = "request_time", "response_time"
_PRIME = np.uint64(0x9E3779B97F4A7C15)
Digests = NDArray[np.uint64]


class Copies:
    """The copies of a recording, numbered from 0."""

    def __init__(self, whole: Recording) -> None:
        """Raises ValueError if the recording cannot be bundled."""
        magic = [struct.pack(f"{order}I", each) for order in "<>" for each in _MAGIC]
        if whole.data[:4] not in magic:
            raise ValueError("not a pcap file")
        self._whole = whole
        self._data = np.frombuffer(whole.data, np.uint8)
        step = 1 if whole.data[0] in b"\xd4\x4d" else -1
        self._time = whole.begin[:, None] + np.arange(4)[::step]
        seconds = self._seconds(self._data)
        self.seconds = int(seconds.max() - seconds.min()) + PAUSE
        """Between the beginnings of two copies."""
        self.size = min(COPIES, max(PACKETS // len(whole.begin), 1))
        """Most copies of a bundle."""
        packets = _addresses(whole)
        known = {each for _, *pair in packets for each in pair}
        place = {length: _place(known, length) for length in {len(each) for each in known}}
        self._numbered = np.array(
            sorted({
                whole.data.index(source + target, whole.begin[index], whole.end[index]) + at
                for index, source, target in packets
                for at in (place[len(source)], len(source) + place[len(source)])
            }), np.int64,
        )  # fmt: skip
        self._place = place
        self._origin = {
            _text(each, place[len(each)], number): (number, _text(each, 0, -1))
            for each in known
            for number in range(-1, COPIES)
        }

    def _seconds(self, data: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The seconds of each packet's time."""
        digits = data[self._time].astype(np.int64)
        seconds: NDArray[np.int64] = (digits << np.arange(0, 32, 8)).sum(axis=1)
        return seconds

    def copy(self, number: int) -> NDArray[np.uint8]:
        """The bytes of a copy, header of the file included; writable."""
        data = self._data.copy()
        data[self._numbered] ^= number + 1
        seconds = self._seconds(data) + number * self.seconds
        data[self._time] = (seconds[:, None] >> np.arange(0, 32, 8)) & 0xFF
        return data

    def bundle(self, copies: Sequence[NDArray[np.uint8]]) -> bytes:
        """A file of these copies, in order, each without the header of the file."""
        return b"".join([self._whole.data[:HEADER], *(each.tobytes() for each in copies)])

    def original(self, packet: Mapping[str, int], number: int) -> dict[str, int]:
        """The fields of a packet of a copy (see `Packets.fields`) as they are in the recording."""
        fields = dict(packet)
        for name in ("src_low", "dst_low"):
            length = 4 if fields[name] >> 32 == 0xFFFF else 16
            if length in self._place and (shift := length - 1 - self._place[length]) < 8:
                fields[name] ^= number + 1 << 8 * shift
        return fields

    def origin(self, address: str) -> tuple[int, str]:
        """The number of the copy with an address (see `digests`), and that of the recording."""
        return self._origin.get(address, (-3, ""))

    def digests(self, exchanges: pa.Table) -> tuple[NDArray[np.int64], Digests, Digests]:
        """By exchange: the number of its copy, -1 for the recording itself, -2 if its addresses are
        damaged; a digest without times; and one with times."""
        client, broker = (self._origins(exchanges[name]) for name in ("client_ip", "broker_ip"))
        number = np.where(client[0] == broker[0], client[0], -2)
        status = exchanges["status"].combine_chunks().dictionary_encode()
        words = [_folded(each.encode()) for each in status.dictionary.to_pylist()]
        digest = np.zeros(len(exchanges), np.uint64)
        for column in (
            client[1], broker[1], np.array(words, np.uint64)[status.indices.to_numpy()],
            *(_ints(exchanges[name]) for name in _NUMBERS),
        ):  # fmt: skip
            digest = _mixed(digest, column)
        timed, shift = digest, np.maximum(number, 0) * self.seconds * 10**9
        for name in _TIMES:
            time = _ints(exchanges[name].cast(pa.int64()))
            timed = _mixed(timed, np.where(time < 0, time, time - shift))
        return number, digest, timed

    def _origins(self, addresses: pa.ChunkedArray) -> tuple[NDArray[np.int64], Digests]:
        """The number of the copy, and the address of the recording, of each address."""
        encoded = addresses.combine_chunks().dictionary_encode()
        pairs = [self.origin(each) for each in encoded.dictionary.to_pylist()]
        index = encoded.indices.to_numpy()
        return (
            np.array([number for number, _ in pairs], np.int64)[index],
            np.array([_folded(address.encode()) for _, address in pairs], np.uint64)[index],
        )


def missing(expected: Digests, actual: Digests) -> int:
    """How many of the expected exchanges are not there."""
    kinds, count = np.unique(expected, return_counts=True)
    index = np.minimum(kinds.searchsorted(actual), max(len(kinds) - 1, 0))
    if not len(kinds):
        return 0
    times = np.bincount(index[kinds[index] == actual], minlength=len(kinds))
    return int(np.maximum(count - times, 0).sum())


def _addresses(whole: Recording) -> list[tuple[int, bytes, bytes]]:
    """Index of each TCP packet, and the addresses of its sender and receiver."""
    with capture_file(whole.data) as path:
        source, packets = open_packets([path]), []
        while (block := source.read(0)) is not None:
            columns = (block.number, *(getattr(block, each) for each in _ENDS))
            for number, *ends in zip(*(each.tolist() for each in columns), strict=True):
                packets.append((number - 1, _packed(*ends[:2]), _packed(*ends[2:])))
    return packets


def _packed(high: int, low: int) -> bytes:
    """An address as on the wire."""
    is_ipv4 = high == 0 and low >> 32 == 0xFFFF
    return struct.pack(">I", low & 0xFFFFFFFF) if is_ipv4 else struct.pack(">QQ", high, low)


def _place(addresses: set[bytes], length: int) -> int:
    """A byte of the addresses of this length without which they still differ."""
    alike = [each for each in addresses if len(each) == length]
    at: int
    for at in (*range(1, length), 0):
        if len({each[:at] + each[at + 1 :] for each in alike}) == len(alike):
            return at
    raise ValueError("the addresses differ in single bytes")


def _text(address: bytes, place: int, number: int) -> str:
    """An address of a copy; see `Copies.copy`."""
    numbered = bytearray(address)
    numbered[place] ^= number + 1
    return str(ipaddress.ip_address(bytes(numbered)))


def _folded(data: bytes) -> int:
    """A number of 61 bits."""
    return int.from_bytes(data, "big") % ((1 << 61) - 1)


def _ints(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """The numbers of a column; -1 for null."""
    numbers: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
    return numbers


def _mixed(digest: Digests, column: NDArray[np.int64] | Digests) -> Digests:
    mixed: Digests = (digest ^ column.astype(np.uint64)) * _PRIME
    return mixed ^ (mixed >> np.uint64(29))

"""Pruning: payload that no requested table needs is not shuffled.

Most bytes of a bulk capture are records. `exchanges` and similar tables only need their number,
which is in the header of each batch. So the task that reads a split follows its large connections
up to frames, requests and responses, and removes the payload of packets that lie inside a batch,
after its header. The dissecting task sees zeros there, and never reads them.

This is correct if both tasks find the same messages. The reading task has only a part of the
capture, which may start in mid-connection or lack packets that another file has. So it prunes only
whole messages, and records a check for each: a hash of API, version, correlation id, size and first
packet. The dissecting task verifies that it found these messages. If one is missing, the rows are
made again from packets that are not pruned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.spark import packets
from analysis.spark.packets import PruneChecks, select_packets
from dissector.exchanges.correlator import Correlator
from dissector.exchanges.decoded_messages import DecodedMessages
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64, PacketBlock
from dissector.protocol import registry
from dissector.protocol.evidence import evidence
from dissector.protocol.notation import Direction
from dissector.records.batch_reader import read_batches
from dissector.streams import Streams
from dissector.streams.byteview import ByteView, ContiguousBytes, ScatteredBytes, ranges

NEED_RECORDS: Final = frozenset({"batches", "decompressed_batches", "records", "problems"})
"""Tables that need more of a batch than its header."""

_HEADER: Final = 61
"""Bytes of a batch header in the newest format; batches of other formats are not pruned."""
_NEWEST: Final = 2
_LARGE_PACKET: Final = 1000
"""Bytes of payload. A large connection sends most of its bytes in packets of this size."""
_UNDECODED: Final = "undecoded"


class PayloadPruner:
    """Follows the large connections of a split, block by block."""

    def __init__(
        self, ports: Collection[int], brokers: Iterable[tuple[int, int, int]], packets_before: int
    ) -> None:
        """`packets_before`: number of packets of the file before those that blocks count."""
        newest = {key: registry.versions(key)[-1] for key in registry.apis()}
        self._streams = Streams(ports=ports, newest=newest, evidence=evidence)
        for broker in brokers:
            self._streams.learn_broker(*broker)
        self._correlator = Correlator(TopicNames(), tables=())
        self._pairs = np.zeros(0, np.int64)
        self._packets_before = packets_before
        self._now = 0

    def reserve(self) -> int:
        """Bytes to leave free before the next block."""
        return self._streams.reserve

    def prune(self, block: PacketBlock) -> tuple[NDArray[np.bool_], PruneChecks]:
        """The packets of a block without needed payload, and the prune checks for them."""
        large = self._large(block)
        pruned = np.zeros(len(block), np.bool_)
        if not large.any():
            return pruned, packets.NO_CHECKS
        block = block if large.all() else select_packets(block, large)
        self._now = max(self._now, block.latest or 0)
        frames = self._streams.feed(block)
        self._streams.decrypted.clear()
        ended = np.zeros(self._streams.connections.count, np.bool_)
        turn = self._correlator.feed(frames, self._now, ended)
        begin, end, checks = [], [], []
        for side in (turn.request, turn.response):
            for message, space, low, high in _bodies(side):
                at, until = _positions(space, low, high, block)
                begin.append(at)
                end.append(until)
                checks.append(self._checks(side, np.unique(message)))
        pruned[large] = _inside(block, begin, end)
        return pruned, packets.concat_checks(checks)

    def _large(self, block: PacketBlock) -> NDArray[np.bool_]:
        """The packets of large connections. A connection that was large once stays so."""
        pair, code = np.unique(packets.connections(block), return_inverse=True)
        size = np.bincount(code, block.captured, len(pair))
        mass = np.where(block.captured >= _LARGE_PACKET, block.captured, 0)
        is_large = 2 * np.bincount(code, mass, len(pair)) > size
        self._pairs = np.union1d(self._pairs, pair[is_large])
        large: NDArray[np.bool_] = np.isin(pair, self._pairs)[code]
        return large

    def _checks(self, side: DecodedMessages, message: Int64) -> PruneChecks:
        headers, messages = side.headers[message], side.messages
        pair = packets.connections_of(self._streams.connections, headers.connection)
        kind = _kind(messages.direction, messages.api_key[message], messages.version[message])
        number = headers.packet + self._packets_before
        return PruneChecks(pair, _fingerprint(kind, headers.correlation_id, headers.bytes, number))


def _bodies(side: DecodedMessages) -> Iterator[tuple[Int64, ByteView, Int64, Int64]]:
    """The records of each batch: message, space, and the addresses where they start and end.

    Only for messages that are complete and decoded.
    """
    is_complete = side.known & side.fields.good & side.headers.whole
    for group, column in side.fields.columns("records"):
        assert column.length is not None
        batches = read_batches(group.space, column.at, column.length, verify=False)
        message = group.message(column)[batches.field]
        is_prunable = is_complete[message] & (batches.magic == _NEWEST) & ~batches.truncated
        is_prunable &= batches.size >= _HEADER + _LARGE_PACKET
        low, size = batches.address[is_prunable], batches.size[is_prunable]
        yield message[is_prunable], group.space, low + _HEADER, low + size


def _positions(
    space: ByteView, begin: Int64, end: Int64, block: PacketBlock
) -> tuple[Int64, Int64]:
    """Ranges of a block's data for address ranges of a space, piece by piece."""
    if isinstance(space, ContiguousBytes) and space.data is block.data:
        return begin, end
    if not isinstance(space, ScatteredBytes) or space.data is not block.data:
        return begin[:0], end[:0]  # copies of bytes of earlier blocks
    first = np.maximum(np.searchsorted(space.address, begin, "right") - 1, 0)
    count = np.searchsorted(space.address, end, "left") - first
    piece, _ = ranges(first, count)
    address = space.address[piece]
    low = np.maximum(np.repeat(begin, count), address)
    high = np.minimum(np.repeat(end, count), address + space.length[piece])
    shift = space.position[piece] - address
    return low + shift, high + shift


def _inside(block: PacketBlock, begin: list[Int64], end: list[Int64]) -> NDArray[np.bool_]:
    """Packets whose payload lies inside one of these ranges of the block's data."""
    low, high = np.concatenate([*begin, [-1]]), np.concatenate([*end, [-1]])
    order = np.argsort(low)
    low, high = low[order], high[order]
    place = np.searchsorted(low, block.payload, "right") - 1
    inside: NDArray[np.bool_] = block.payload + block.captured <= high[place]
    return inside & (block.captured > 0)


def _fingerprint(kind: Int64, correlation_id: Int64, size: Int64, packet: Int64) -> Int64:
    columns = (kind, correlation_id, size << 40 ^ packet)
    return packets.mixed(*(each.view(np.uint64) for each in columns)).view(np.int64)


def fingerprints(exchanges: pa.RecordBatch) -> Int64:
    """The fingerprints of messages in rows of `exchanges`."""
    decoded = exchanges.filter(pc.not_equal(exchanges["status"], _UNDECODED))
    return np.concatenate([_side_fingerprints(decoded, side) for side in Direction])


def _side_fingerprints(rows: pa.RecordBatch, side: Direction) -> Int64:
    size, packet = f"{side.name.lower()}_bytes", f"{side.name.lower()}_packet"
    rows = rows.filter(rows[packet].is_valid())
    api_key, version, *columns = (
        rows[name].fill_null(-1).to_numpy().astype(np.int64)
        for name in ("api_key", "api_version", "correlation_id", size, packet)
    )
    return _fingerprint(_kind(side, api_key, version), *columns)


def _kind(side: Direction, api_key: Int64, version: Int64) -> Int64:
    return np.int64(side) << 40 | api_key << 16 | version

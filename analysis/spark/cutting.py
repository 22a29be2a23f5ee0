"""Cutting: what need not travel, since no table that is asked for tells of it.

Most bytes of a bulk capture are records, of which `exchanges` and its like tell how many there
are: that is in the header of each batch. So whoever reads a split follows its large connections as
far as frames, requests and responses, and leaves behind the payload of packets that lie within a
batch, behind its header. Whoever dissects the connection finds zeros there, and never looks.

That is so if both see the same messages. The one that cuts has a part of the capture, which may
begin in mid-connection or lack packets that another file has; it takes whole messages only, and
says of which it has cut something: a claim. The one that dissects compares the claims with what it
found. If one is not among it, the rows are made again of packets that are not cut. Between the two
a message is the same if it has the same API and version, correlation id, size and first packet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.spark import packets
from analysis.spark.packets import Claims, chosen
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
"""Tables that tell more of batches than their headers do."""

_HEADER: Final = 61
"""Bytes of a batch's header, in the newest format; others are not cut."""
_NEWEST: Final = 2
_LARGE_PACKET: Final = 1000
"""Bytes of payload; what a connection sends must be for the most part in such packets."""
_UNDECODED: Final = "undecoded"


class Cutter:
    """Follows the large connections of a split, block by block."""

    def __init__(
        self, ports: Collection[int], brokers: Iterable[tuple[int, int, int]], packets_before: int
    ) -> None:
        """`packets_before`: packets of the file before those that blocks count."""
        newest = {key: registry.versions(key)[-1] for key in registry.apis()}
        self._streams = Streams(ports=ports, newest=newest, evidence=evidence)
        for broker in brokers:
            self._streams.learn_broker(*broker)
        self._conversation = Correlator(TopicNames(), tables=())
        self._pairs = np.zeros(0, np.int64)
        self._before = packets_before
        self._now = 0

    def reserve(self) -> int:
        """Bytes to leave free in front of the next block."""
        return self._streams.reserve

    def cut(self, block: PacketBlock) -> tuple[NDArray[np.bool_], Claims]:
        """Which packets of a block need not travel, and in return for which claims."""
        large = self._large(block)
        none = np.zeros(len(block), np.bool_)
        if not large.any():
            return none, packets.NO_CLAIMS
        block = block if large.all() else chosen(block, large)
        self._now = max(self._now, block.latest or 0)
        frames = self._streams.feed(block)
        self._streams.decrypted.clear()
        ended = np.zeros(self._streams.connections.count, np.bool_)
        turn = self._conversation.feed(frames, self._now, ended)
        begin, end, claims = [], [], []
        for side in (turn.request, turn.response):
            for message, space, low, high in _bodies(side):
                at, until = _positions(space, low, high, block)
                begin.append(at)
                end.append(until)
                claims.append(self._claims(side, np.unique(message)))
        none[large] = _inside(block, begin, end)
        return none, packets.joined(claims)

    def _large(self, block: PacketBlock) -> NDArray[np.bool_]:
        """The packets of large connections; one that was once is followed from then on."""
        pair, code = np.unique(packets.connections(block), return_inverse=True)
        size = np.bincount(code, block.captured, len(pair))
        mass = np.where(block.captured >= _LARGE_PACKET, block.captured, 0)
        is_large = 2 * np.bincount(code, mass, len(pair)) > size
        self._pairs = np.union1d(self._pairs, pair[is_large])
        found: NDArray[np.bool_] = np.isin(pair, self._pairs)[code]
        return found

    def _claims(self, side: DecodedMessages, message: Int64) -> Claims:
        heads, told = side.headers[message], side.messages
        pair = packets.connections_of(self._streams.connections, heads.connection)
        kind = _kind(told.direction, told.api_key[message], told.version[message])
        number = heads.packet + self._before
        return Claims(pair, _hashed(kind, heads.correlation_id, heads.bytes, number))


def _bodies(side: DecodedMessages) -> Iterator[tuple[Int64, ByteView, Int64, Int64]]:
    """The records of each batch: message, space, and address of the first byte and behind the last.

    Of messages that are whole and understood.
    """
    sure = side.known & side.fields.good & side.headers.whole
    for group, column in side.fields.columns("records"):
        assert column.length is not None
        batches = read_batches(group.space, column.at, column.length, verify=False)
        message = group.message(column)[batches.field]
        some = sure[message] & (batches.magic == _NEWEST) & ~batches.truncated
        some &= batches.size >= _HEADER + _LARGE_PACKET
        low, size = batches.address[some], batches.size[some]
        yield message[some], group.space, low + _HEADER, low + size


def _positions(
    space: ByteView, begin: Int64, end: Int64, block: PacketBlock
) -> tuple[Int64, Int64]:
    """Where these stretches of a space lie in a block's data, piece by piece."""
    if isinstance(space, ContiguousBytes) and space.data is block.data:
        return begin, end
    if not isinstance(space, ScatteredBytes) or space.data is not block.data:
        return begin[:0], end[:0]  # copies of what came earlier
    first = np.maximum(np.searchsorted(space.address, begin, "right") - 1, 0)
    count = np.searchsorted(space.address, end, "left") - first
    piece, _ = ranges(first, count)
    address = space.address[piece]
    low = np.maximum(np.repeat(begin, count), address)
    high = np.minimum(np.repeat(end, count), address + space.length[piece])
    shift = space.position[piece] - address
    return low + shift, high + shift


def _inside(block: PacketBlock, begin: list[Int64], end: list[Int64]) -> NDArray[np.bool_]:
    """Packets whose payload lies within one of these stretches of the block's data."""
    low, high = np.concatenate([*begin, [-1]]), np.concatenate([*end, [-1]])
    order = np.argsort(low)
    low, high = low[order], high[order]
    place = np.searchsorted(low, block.payload, "right") - 1
    inside: NDArray[np.bool_] = block.payload + block.captured <= high[place]
    return inside & (block.captured > 0)


def _hashed(kind: Int64, correlation_id: Int64, size: Int64, packet: Int64) -> Int64:
    columns = (kind, correlation_id, size << 40 ^ packet)
    return packets.mixed(*(each.view(np.uint64) for each in columns)).view(np.int64)


def found(exchanges: pa.RecordBatch) -> Int64:
    """The claims that rows of `exchanges` bear out."""
    understood = exchanges.filter(pc.not_equal(exchanges["status"], _UNDECODED))
    return np.concatenate([_told(understood, side) for side in Direction])


def _told(rows: pa.RecordBatch, side: Direction) -> Int64:
    size, packet = f"{side.name.lower()}_bytes", f"{side.name.lower()}_packet"
    rows = rows.filter(rows[packet].is_valid())
    api_key, version, *more = (
        rows[name].fill_null(-1).to_numpy().astype(np.int64)
        for name in ("api_key", "api_version", "correlation_id", size, packet)
    )
    return _hashed(_kind(side, api_key, version), *more)


def _kind(side: Direction, api_key: Int64, version: Int64) -> Int64:
    return np.int64(side) << 40 | api_key << 16 | version

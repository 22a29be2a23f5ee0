"""The chosen packets of a capture as pcapng.

Order, times, link types, descriptions of interfaces, and options of packets are those of the
original. A packet with the first byte of a message gets a comment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from analysis.cutting.packets import PacketChoice, Part
from dissector.packets.block import Int64, Place
from dissector.packets.files import FileSource
from dissector.packets.formats.capture_reader import Interface, PacketRecords
from dissector.packets.formats.pcapng_writer import (
    comment_option,
    interface_block,
    named_interface,
    packet_block,
    packet_options,
)
from dissector.packets.trimming import trimmed

FILE_BITS: Final = 40


@dataclass(slots=True)
class PacketCount:
    """Amount of packets that were written."""

    packets: int = 0
    trimmed: int = 0
    """Packets without bytes of other messages."""


def packet_blocks(source: FileSource, choice: PacketChoice, count: PacketCount) -> Iterator[bytes]:
    """The blocks of interfaces and packets. `count` grows."""
    places = np.concatenate([np.zeros((2, 0), np.int64), *choice.places], axis=1)
    wanted = np.unique(_numbers(places))
    interfaces: dict[tuple[int, int], int] = {}
    while (batch := source.read_records()) is not None:
        records, capture = batch
        numbers = _numbers(np.stack([capture.astype(np.int64), records.number]))
        for row in np.flatnonzero(np.isin(numbers, wanted)).tolist():
            file, interface = int(capture[row]), int(records.columns.interface[row])
            described = _interface(source, records, file, row)
            if (file, interface) not in interfaces:
                interfaces[file, interface] = len(interfaces)
                yield interface_block(described)
            place = file, int(records.number[row])
            for data, options in _packets(records, row, described, place, choice):
                count.packets += 1
                yield packet_block(
                    interfaces[file, interface], described, int(records.columns.time[row]), data,
                    int(records.columns.length[row]), options,
                )  # fmt: skip
            part = choice.parts.get(place)
            count.trimmed += part is not None and part.removed > 0


def _numbers(places: Int64) -> Int64:
    numbers: Int64 = places[0] << FILE_BITS | places[1]
    return numbers


def _interface(source: FileSource, records: PacketRecords, file: int, row: int) -> Interface:
    described, number = source.interfaces(file), int(records.columns.interface[row])
    if number < 0:
        return named_interface("", int(records.columns.link[row]))
    return replace(described[number], link=int(records.columns.link[row]))


def _packets(
    records: PacketRecords, row: int, interface: Interface, place: Place, choice: PacketChoice
) -> Iterator[tuple[bytes, list[tuple[int, bytes]]]]:
    """The packet with its options; several if it has parts."""
    start, captured = int(records.columns.start[row]), int(records.columns.captured[row])
    packet = records.data[start : start + captured].tobytes()
    options = [*packet_options(records, row, interface)]
    comments = choice.comments.get(place, [])
    part = choice.parts.get(place)
    pieces = part and _trimmed(packet, part)
    if part is None or not pieces:
        yield packet, [*options, *(comment_option(text) for _, text in comments)]
        return
    left = comments
    for begin, end, data in pieces:
        limit = part.segment.seq + end
        own = [text for sequence, text in left if sequence < limit]
        left = [each for each in left if each[0] >= limit]
        if removed := part.segment.length - (end - begin):
            own.append(f"{removed:,} payload bytes of other messages removed")
        yield data, [*options, *map(comment_option, own)]


def _trimmed(packet: bytes, part: Part) -> list[tuple[int, int, bytes]]:
    """Begin, end and packet of each range; none if the packet cannot be trimmed."""
    pieces = [
        (*each, trimmed(packet, part.segment, *each, numbers))
        for each, numbers in zip(part.ranges, part.numbers, strict=True)
    ]
    return [(begin, end, data) for begin, end, data in pieces if data is not None]

"""Parts of blocks of packets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dissector.byteview import copy_ranges
from dissector.packets.block import COLUMNS, PAD, PacketBlock
from dissector.streams.connections.table import Bools


def chosen(block: PacketBlock, mask: Bools) -> PacketBlock:
    """The chosen packets of a block, with its counts and problems."""
    columns: dict[str, Any] = {name: getattr(block, name)[mask] for name in COLUMNS}
    return replace(block, **columns)


def compact(block: PacketBlock, is_kept: Bools, begin: int, end: int) -> PacketBlock:
    """The kept packets in [begin, end) of a block, with a copy of their payloads only.

    Without counts and problems.
    """
    mask = np.zeros(len(block), np.bool_)
    mask[begin:end] = is_kept[begin:end]
    packets = chosen(block, mask)
    captured = packets.captured.astype(np.int64)
    payload = np.cumsum(captured) - captured
    data = np.zeros(int(captured.sum()) + PAD, np.uint8)
    copy_ranges(packets.data, packets.payload, captured, data)
    return replace(
        packets, data=data, reserve=0, payload=payload, packets_seen=0, bytes_read=0, problems=[],
        without_tcp={}, until=_latest_before(block, end),
    )  # fmt: skip


def _latest_before(block: PacketBlock, end: int) -> int | None:
    """The latest time before the packet at `end`, ns; None if unknown."""
    latest = block.latest
    if latest is None or end == len(block):
        return latest
    return min(int(block.time[:end].max()), latest) if end else None


def together(blocks: Sequence[PacketBlock]) -> PacketBlock:
    """Successive blocks that `compact` returned, as one."""
    sizes = [len(block.data) for block in blocks]
    begin = np.cumsum(sizes) - sizes
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(block, name) for block in blocks])
        for name in ("data", *COLUMNS)
    }
    columns["payload"] += np.repeat(begin, [len(block) for block in blocks])
    until = [block.until for block in blocks if block.until is not None]
    return replace(blocks[0], **columns, until=max(until, default=None))


def within(block: PacketBlock, times: tuple[int, int]) -> PacketBlock:
    """The packets from the first time to before the second; ns."""
    inside = (block.time >= times[0]) & (block.time < times[1])
    return block if inside.all() else chosen(block, inside)

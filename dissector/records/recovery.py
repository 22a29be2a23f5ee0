"""Verifies checksums, and finds intact batches after damage.

A checksum is a CRC-32C from a batch's attributes on, or a CRC-32 from a message's magic on. That of
a batch does not cover its base offset, length and leader epoch, since the broker sets them; that of
a message does not cover its offset and length. So a wrong length shows as a wrong checksum, but a
wrong base offset or leader epoch does not show.

A wrong batch length makes following sizes fail for the remainder of the field. A length that is too
large covers the next batches, or looks like a batch that the fetch limit cut; a length that is too
small ends inside the batch. Checksums identify intact batches wherever they are: a position that
looks like a header, with a valid checksum, followed by bytes that look like a header, or by the end
of the field. The last condition excludes a complete batch inside the value of a record.

Only fields with a suspect are searched, from their first suspect on. A suspect is a batch with a
wrong checksum, a cut batch, or bytes that are not a batch.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import numpy as np
from crc32c import crc32c
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from dissector.arrays import value
from dissector.byteview import ByteView, ContiguousBytes
from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.records.batch_headers import (
    FRONT,
    MIN_SIZE,
    OVERHEAD,
    Batches,
    BatchOffsets,
    is_sane,
    no_batch,
)
from dissector.records.contiguous import as_contiguous

COVERED_FROM = np.array([16, 16, 21])
"""Offset of the first byte that the checksum covers, by magic."""
_EFFORT = 64
"""Checksummed bytes per searched byte, so that a crafted field cannot cost quadratic time."""
_STRETCH = 1 << 20
"""Bytes searched at a time, or verified: copies of scattered bytes stay in the cache."""


def check_crc(space: ByteView, batches: Batches) -> NDArray[np.int8]:
    """For each batch: 1 for a valid checksum, 0 for an invalid one, -1 if the batch is cut."""
    result = np.full(len(batches), -1, np.int8)
    complete = np.flatnonzero(~batches.truncated)
    borders = np.cumsum(batches.size[complete]) // _STRETCH
    for rows in np.split(complete, np.flatnonzero(np.diff(borders)) + 1):
        magic = batches.magic[rows]
        skip = COVERED_FROM[magic]
        size = batches.size[rows] - skip
        data, at = as_contiguous(space, batches.address[rows] + skip, size)
        values = [
            (crc32c if number == 2 else crc32)(data.data[low:high])
            for number, low, high in zip(
                magic.tolist(), at.tolist(), (at + size).tolist(), strict=True
            )
        ]
        result[rows] = np.array(values, np.uint32) == batches.crc[rows]
    return result


@value
class Link:
    """One batch of a chain."""

    address: int
    size: int
    magic: int

    @property
    def end(self) -> int:
        return self.address + self.size


def recover(
    space: ByteView, chain: BatchOffsets, batches: Batches, stop: Int64
) -> tuple[BatchOffsets, list[tuple[int, Problem]]]:
    """The chain with the recovered batches, and the damage as problems.

    `batches`: the batches of the chain, with `crc_ok` set. Problems have the index of their field;
    their offsets are addresses.
    """
    keep = np.ones(len(chain.address), np.bool_)
    added: list[tuple[int, int, int, int]] = []
    problems: list[tuple[int, Problem]] = []
    for index, at in _first_suspects(chain, batches).items():
        tail = ContiguousBytes.of(space.bytes(at, int(stop[index]) - at))
        links, repair_problems = _repair(tail, find_batches(tail))
        problems += [
            (index, replace(problem, offset=at + (problem.offset or 0)))
            for problem in repair_problems
        ]
        first, behind = np.searchsorted(chain.field, [index, index + 1]).tolist()
        rows = slice(first + int(np.searchsorted(chain.address[first:behind], at)), behind)
        columns = chain.address[rows] - at, chain.size[rows], chain.magic[rows]
        if links != [Link(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]:
            keep[rows] = False
            added += [(index, at + link.address, link.size, link.magic) for link in links]
    if not added:
        return chain, problems
    new = np.array(added, np.int64).T
    field, address = np.append(chain.field[keep], new[0]), np.append(chain.address[keep], new[1])
    order = np.lexsort((address, field))
    size, magic = np.append(chain.size[keep], new[2]), np.append(chain.magic[keep], new[3])
    repaired = BatchOffsets(
        field[order], address[order], size[order], magic[order].astype(np.int8), chain.broken
    )
    return repaired, problems


def _first_suspects(chain: BatchOffsets, batches: Batches) -> dict[int, int]:
    """Address of the first suspect batch of each field that has one."""
    rows = np.flatnonzero((batches.crc_ok == 0) | batches.truncated)
    places = [
        *zip(chain.field[rows].tolist(), chain.address[rows].tolist(), strict=True),
        *chain.broken,
    ]
    return dict(sorted(places, reverse=True))


def _repair(tail: ContiguousBytes, proven: list[Link]) -> tuple[list[Link], list[Problem]]:
    """The batches of the tail of a field that begins with a suspect."""
    links: list[Link] = []
    problems: list[Problem] = []
    known = {link.address: link for link in proven}
    addresses = list(known)
    at = 0
    while at + FRONT <= tail.size:
        if at in known:
            links.append(known[at])
            at = links[-1].end
            continue
        goal = _end_before_next(tail, at, proven[bisect_right(addresses, at) :])
        stated = _link(tail, at)
        follows = stated is not None and (
            stated.end == tail.size or _begins(tail, stated.end, known)
        )
        if stated is not None and follows and stated.end <= goal:
            links.append(stated)  # its length is right, but other bytes are damaged
            at = stated.end
            continue
        right = Link(at, goal - at, int(tail.data[at + 16]))
        if _is_checksum_valid(tail, right):
            # The checksum does not cover the length, so it proves where the batch ends.
            links.append(right)
            problems.append(_bad_length(tail, right))
        elif stated is not None and _contains_batches(tail, stated, goal, known):
            links.append(stated)  # complete, or cut by the fetch limit
            goal = stated.end
        elif stated is not None:
            links.append(stated)
            if stated.end > goal:
                problems.append(_bad_length(tail, replace(stated, size=goal - at)))
            elif stated.end + FRONT <= tail.size:
                problems.append(no_batch(tail, stated.end, goal))
        else:
            problems.append(no_batch(tail, at, goal))
        at = goal
    return links, problems


def _end_before_next(tail: ContiguousBytes, at: int, later: list[Link]) -> int:
    """Address of the first of the `later` proven batches, or the end of the field.

    A codec may store incompressible bytes as they are. So proven messages may be inside a
    compressed message: they have its magic, and no larger offset, because it has the offset of its
    last message (KIP-31). So may the next messages of a produce request: the checksum separates
    them.
    """
    if not later:
        return tail.size
    magic, attributes = tail.data[at + 16 : at + 18].tolist()
    is_compressed = magic < 2 and attributes & 7 != 0 and _looks_like_header(tail, at)
    last_offset, checksum = _offset(tail, at), int.from_bytes(tail.bytes(at + 12, 4))
    computed, end = 0, at + COVERED_FROM[0]
    for link in later:
        may_be_inside = link.magic == magic and _offset(tail, link.address) <= last_offset
        if not is_compressed or not may_be_inside:
            return link.address
        computed = crc32(tail.data[end : link.address].data, computed)
        if computed == checksum:
            return link.address
        end = link.address
    return tail.size


def _offset(tail: ContiguousBytes, at: int) -> int:
    return int.from_bytes(tail.bytes(at, 8), signed=True)


def _begins(tail: ContiguousBytes, at: int, known: dict[int, Link]) -> bool:
    """Whether a batch seems to begin at `at`."""
    return at in known or (at + FRONT <= tail.size and _looks_like_header(tail, at))


def _contains_batches(
    tail: ContiguousBytes, stated: Link, goal: int, known: dict[int, Link]
) -> bool:
    """Whether the proven batches from `goal` on are inside the value of a record of this batch.

    This is so if the end of this batch is certain, and a chain of batches does not lead to it,
    because record bytes follow the value. It is also so if the end of the field cuts this batch,
    and no chain of proven batches leads there.
    """
    if stated.end < tail.size and stated.end not in known:
        return False
    if goal == tail.size:
        return True
    at = goal if stated.end <= tail.size else max(known)
    while at < min(stated.end, tail.size):
        link = _link(tail, at) if _begins(tail, at, known) else None
        if link is None:
            return True
        at = link.end
    return stated.end <= tail.size and at != stated.end


def _link(tail: ContiguousBytes, at: int) -> Link | None:
    """The batch at `at` by its first bytes; None if they are impossible."""
    size = int.from_bytes(tail.bytes(at + 8, 4), signed=True) + OVERHEAD
    magic = tail.number(np.array([at + 16]), "u1")
    return Link(at, size, int(magic[0])) if is_sane(magic, np.array([size])).all() else None


def _looks_like_header(tail: ContiguousBytes, at: int) -> bool:
    return bool(looks_like_batch(tail, np.array([at])).all())


def _bad_length(tail: ContiguousBytes, link: Link) -> Problem:
    stated = int.from_bytes(tail.bytes(link.address + 8, 4), signed=True) + OVERHEAD
    detail = f"the length field announces {stated} bytes, but the batch has {link.size}"
    return Problem("records", "bad_length", detail, offset=link.address, bytes=link.size)


def find_batches(tail: ContiguousBytes) -> list[Link]:
    """All proven batches after the first byte, in order."""
    effort = _EFFORT * tail.size
    proven: list[Link] = []
    for stretch in range(1, tail.size, _STRETCH):
        for link in _candidates(tail, stretch, min(stretch + _STRETCH, tail.size)):
            if proven and link.address < proven[-1].end:
                continue
            effort -= link.size
            if effort < 0:
                return proven
            if _is_proven(tail, link):
                proven.append(link)
    return proven


def _candidates(tail: ContiguousBytes, begin: int, end: int) -> list[Link]:
    """Positions in [begin, end) that look like a complete batch."""
    if not tail.data[begin + 8 : end + 12].any():
        return []  # zeros would pass as magic 0, but have no length
    at = begin + np.flatnonzero(tail.data[begin + 16 : end + 16] <= 2)
    at = at[at + FRONT <= tail.size]
    size = tail.number(at + 8, "i4") + OVERHEAD
    fits = (size > OVERHEAD) & (at + size <= tail.size)
    at, size = at[fits], size[fits]
    good = looks_like_batch(tail, at)
    at, size = at[good], size[good]
    columns = (at.tolist(), size.tolist(), tail.number(at + 16, "u1").tolist())
    return [Link(*link) for link in zip(*columns, strict=True)]


def _is_proven(tail: ContiguousBytes, link: Link) -> bool:
    if not _is_checksum_valid(tail, link):
        return False
    return link.end + FRONT > tail.size or _looks_like_header(tail, link.end)


def _is_checksum_valid(tail: ContiguousBytes, link: Link) -> bool:
    """Whether a batch that ends where `link` ends has a valid checksum."""
    if link.magic >= len(MIN_SIZE) or link.size < MIN_SIZE[link.magic]:
        return False
    covered = tail.data[link.address + COVERED_FROM[link.magic] : link.end].data
    checksum, stored = (crc32c, 17) if link.magic == 2 else (crc32, 12)
    return checksum(covered) == int.from_bytes(tail.bytes(link.address + stored, 4))


def looks_like_batch(tail: ContiguousBytes, at: Int64) -> NDArray[np.bool_]:
    """Whether the header fields have valid values; cut fields pass."""

    def number(offset: Int64 | int, dtype: str) -> Int64:
        return tail.number(np.minimum(at + offset, tail.size), dtype)

    magic = tail.number(at + 16, "u1")
    size = number(8, "i4") + OVERHEAD
    newest = magic == 2
    batch = (number(21, "u2") < 0x80) & (number(23, "i4") >= 0) & (number(57, "i4") >= 0)
    key = number(np.where(magic == 1, 26, 18), "i4")
    message = (number(17, "u1") < 0x10) & (key >= -1) & (key < size)
    return is_sane(magic, size) & np.where(newest, batch, message)

"""Finding the next good batch behind damage.

A wrong length sends the walk astray, and takes the field's rest with it: too long, it swallows the
batches behind, or looks as if the fetch limit had cut it; too short, it ends inside the batch. A
batch proves itself by its checksum, so good ones can be found again wherever they lie: a place that
looks like a header, whose checksum holds, and behind which there is again what looks like a header,
or the end. The last condition keeps out a batch that lies whole in the value of a record.

Only fields with a suspect are looked at: a batch whose checksum is wrong, one that is cut, or what
is no batch; and each only from its first suspect on.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np
from crc32c import crc32c
from isal.isal_zlib import crc32
from numpy.typing import NDArray

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
from dissector.records.checksums import COVERED_FROM
from dissector.streams.byteview import ByteView, ContiguousBytes

_EFFORT = 64
"""Bytes of checksums that a byte of a suspect may cost, lest a crafted field costs its square."""
_STRETCH = 1 << 20
"""Bytes searched at a time."""


@dataclass(frozen=True, slots=True)
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
    """The chain with the batches that it had lost, and what it runs astray at as problems.

    `batches` are the chain's, with `crc_ok` set. Problems come with the index of their field, and
    with addresses as offsets.
    """
    keep = np.ones(len(chain.address), np.bool_)
    added: list[tuple[int, int, int, int]] = []
    problems: list[tuple[int, Problem]] = []
    for index, at in _first_suspects(chain, batches).items():
        rest = ContiguousBytes.of(space.bytes(at, int(stop[index]) - at))
        links, found = _mend(rest, find_batches(rest, 1))
        problems += [(index, replace(each, offset=at + (each.offset or 0))) for each in found]
        first, behind = np.searchsorted(chain.field, [index, index + 1]).tolist()
        rows = slice(first + int(np.searchsorted(chain.address[first:behind], at)), behind)
        columns = chain.address[rows] - at, chain.size[rows], chain.magic[rows]
        if links != [Link(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]:
            keep[rows] = False
            added += [(index, at + link.address, link.size, link.magic) for link in links]
    if not added:
        return chain, problems
    new = np.array(added, np.int64).T
    whole = BatchOffsets(
        np.append(chain.field[keep], new[0]),
        np.append(chain.address[keep], new[1]),
        np.append(chain.size[keep], new[2]),
        np.append(chain.magic[keep], new[3].astype(np.int8)),
        chain.broken,
    )
    return whole.ordered(), problems


def _first_suspects(chain: BatchOffsets, batches: Batches) -> dict[int, int]:
    """Address of the first suspect of each field that has one."""
    rows = np.flatnonzero((batches.crc_ok == 0) | batches.truncated)
    places = [
        *zip(chain.field[rows].tolist(), chain.address[rows].tolist(), strict=True),
        *chain.broken,
    ]
    return dict(sorted(places, reverse=True))


def _mend(rest: ContiguousBytes, proven: list[Link]) -> tuple[list[Link], list[Problem]]:
    """The batches of the rest of a field that begins with a suspect."""
    links: list[Link] = []
    problems: list[Problem] = []
    known = {link.address: link for link in proven}
    addresses = list(known)
    at = 0
    while at + FRONT <= rest.size:
        if at in known:
            links.append(known[at])
            at = links[-1].end
            continue
        behind = bisect_right(addresses, at)
        goal = addresses[behind] if behind < len(addresses) else rest.size
        told = _link(rest, at)
        follows = told is not None and (told.end == rest.size or _begins(rest, told.end, known))
        if told is not None and follows and told.end <= goal:
            links.append(told)  # its length is right, something else in it is not
            at = told.end
            continue
        right = Link(at, goal - at, int(rest.data[at + 16]))
        if _holds(rest, right):
            # The checksum does not cover the length, and proves where the batch ends.
            links.append(right)
            problems.append(_bad_length(rest, right))
        elif told is not None and _holds_others(rest, told, goal, known):
            links.append(told)  # whole, or cut by the fetch limit
            goal = told.end
        elif told is not None:
            links.append(told)
            if told.end > goal:
                problems.append(_bad_length(rest, replace(told, size=goal - at)))
            elif told.end + FRONT <= rest.size:
                problems.append(no_batch(rest, told.end, goal))
        else:
            problems.append(no_batch(rest, at, goal))
        at = goal
    return links, problems


def _begins(rest: ContiguousBytes, at: int, known: dict[int, Link]) -> bool:
    """Whether a batch begins here, as far as one can tell."""
    return at in known or (at + FRONT <= rest.size and _looks_like_one(rest, at))


def _holds_others(rest: ContiguousBytes, told: Link, goal: int, known: dict[int, Link]) -> bool:
    """Whether what proved itself, from `goal` on, lies in the value of a record of this batch.

    So it is where this batch's end is sure, and batch upon batch does not lead there: behind a
    value, more of its record follows. Or where the field's end cuts this batch, and none of what
    proved itself leads there.
    """
    if told.end < rest.size and told.end not in known:
        return False
    if goal == rest.size:
        return True
    at = goal if told.end <= rest.size else max(known)
    while at < min(told.end, rest.size):
        link = _link(rest, at) if _begins(rest, at, known) else None
        if link is None:
            return True
        at = link.end
    return told.end <= rest.size and at != told.end


def _link(rest: ContiguousBytes, at: int) -> Link | None:
    """The batch that its front says begins here."""
    size = int.from_bytes(rest.bytes(at + 8, 4), signed=True) + OVERHEAD
    magic = rest.data[at + 16 : at + 17]
    return Link(at, size, int(magic[0])) if is_sane(magic, np.array([size])).all() else None


def _looks_like_one(rest: ContiguousBytes, at: int) -> bool:
    return bool(looks_like_batch(rest, np.array([at])).all())


def _bad_length(rest: ContiguousBytes, link: Link) -> Problem:
    told = int.from_bytes(rest.bytes(link.address + 8, 4), signed=True) + OVERHEAD
    detail = f"the batch says that it has {told} bytes, but has {link.size}"
    return Problem("records", "bad_length", detail, offset=link.address, bytes=link.size)


def find_batches(rest: ContiguousBytes, begin: int) -> list[Link]:
    """Every batch that begins at `begin` or later, and proves itself, in order."""
    effort = _EFFORT * rest.size
    found: list[Link] = []
    for stretch in range(begin, rest.size, _STRETCH):
        for link in _candidates(rest, stretch, min(stretch + _STRETCH, rest.size)):
            if found and link.address < found[-1].end:
                continue
            effort -= link.size
            if effort < 0:
                return found
            if _proves_itself(rest, link):
                found.append(link)
    return found


def _candidates(rest: ContiguousBytes, begin: int, end: int) -> list[Link]:
    """What looks like a whole batch, beginning in [begin, end)."""
    if not rest.data[begin + 8 : end + 12].any():
        return []  # zeros, of which there may be many, could all be magic 0, but of no length
    at = begin + np.flatnonzero(rest.data[begin + 16 : end + 16] <= 2)
    at = at[at + FRONT <= rest.size]
    size = rest.number(at + 8, "i4").astype(np.int64) + OVERHEAD
    fits = (size > OVERHEAD) & (at + size <= rest.size)
    at, size = at[fits], size[fits]
    good = looks_like_batch(rest, at)
    at, size = at[good], size[good]
    columns = (at.tolist(), size.tolist(), rest.u8(at + 16).tolist())
    return [Link(*link) for link in zip(*columns, strict=True)]


def _proves_itself(rest: ContiguousBytes, link: Link) -> bool:
    if not _holds(rest, link):
        return False
    return link.end + FRONT > rest.size or _looks_like_one(rest, link.end)


def _holds(rest: ContiguousBytes, link: Link) -> bool:
    """Whether the checksum of a batch that ends where `link` does is the one that it stores."""
    if link.magic >= len(MIN_SIZE) or link.size < MIN_SIZE[link.magic]:
        return False
    covered = rest.data[link.address + COVERED_FROM[link.magic] : link.end].data
    checksum, stored = (crc32c, 17) if link.magic == 2 else (crc32, 12)
    return checksum(covered) == int.from_bytes(rest.bytes(link.address + stored, 4))


def looks_like_batch(rest: ContiguousBytes, at: Int64) -> NDArray[np.bool_]:
    """Whether all that a header's fields can be checked for is so; cut fields pass."""

    def number(offset: Int64 | int, dtype: str) -> Int64:
        return rest.number(np.minimum(at + offset, rest.size), dtype).astype(np.int64)

    magic = rest.u8(at + 16)
    size = number(8, "i4") + OVERHEAD
    newest = magic == 2
    batch = (number(21, "u2") < 0x80) & (number(23, "i4") >= 0) & (number(57, "i4") >= 0)
    key = number(np.where(magic == 1, 26, 18), "i4")
    message = (number(17, "u1") < 0x10) & (key >= -1) & (key < size)
    return is_sane(magic, size) & np.where(newest, batch, message)

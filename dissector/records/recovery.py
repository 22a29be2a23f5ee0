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
from dissector.records.checksums import COVERED_FROM
from dissector.records.headers import (
    FRONT,
    MIN_SIZE,
    OVERHEAD,
    Batches,
    Chain,
    is_sane,
    no_batch,
)
from dissector.streams.bytespace import ByteSpace, FlatSpace

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
    space: ByteSpace, chain: Chain, batches: Batches, stop: Int64
) -> tuple[Chain, list[tuple[int, Problem]]]:
    """The chain with the batches that it had lost, and what it runs astray at as problems.

    `batches` are the chain's, with `crc_ok` set. Problems come with the index of their field, and
    with addresses as offsets.
    """
    keep = np.ones(len(chain.address), np.bool_)
    fields: list[int] = []
    links: list[Link] = []
    problems: list[tuple[int, Problem]] = []
    for index, at in _first_suspects(chain, batches).items():
        end = int(stop[index])
        mended, found = _mend(space, at, end, find_batches(space, at + 1, end))
        problems += [(index, problem) for problem in found]
        rows = slice(*np.searchsorted(chain.field, [index, index + 1]).tolist())
        before = chain.address[rows] < at
        columns = (
            chain.address[rows][~before],
            chain.size[rows][~before],
            chain.magic[rows][~before],
        )
        if mended != [Link(*link) for link in zip(*(c.tolist() for c in columns), strict=True)]:
            keep[rows] = before
            fields += [index] * len(mended)
            links += mended
    if keep.all() and not links:
        return chain, problems
    whole = Chain(
        np.append(chain.field[keep], np.array(fields, np.int64)),
        np.append(chain.address[keep], np.array([link.address for link in links], np.int64)),
        np.append(chain.size[keep], np.array([link.size for link in links], np.int64)),
        np.append(chain.magic[keep], np.array([link.magic for link in links], np.int8)),
        chain.broken,
    )
    return whole.ordered(), problems


def _first_suspects(chain: Chain, batches: Batches) -> dict[int, int]:
    """Address of the first suspect of each field that has one."""
    rows = np.flatnonzero((batches.crc_ok == 0) | batches.truncated)
    places = [
        *zip(chain.field[rows].tolist(), chain.address[rows].tolist(), strict=True),
        *chain.broken,
    ]
    return dict(sorted(places, reverse=True))


def _mend(
    space: ByteSpace, at: int, stop: int, proven: list[Link]
) -> tuple[list[Link], list[Problem]]:
    """The batches from `at` on, where a batch must begin."""
    links: list[Link] = []
    problems: list[Problem] = []
    known = {link.address: link for link in proven}
    addresses = list(known)
    while at + FRONT <= stop:
        if at in known:
            links.append(known[at])
            at = links[-1].end
            continue
        behind = bisect_right(addresses, at)
        goal = addresses[behind] if behind < len(addresses) else stop
        told = _link(space, at)
        follows = told is not None and (told.end == stop or _begins(space, told.end, stop, known))
        if told is not None and follows and told.end <= goal:
            links.append(told)  # its length is right, something else in it is not
            at = told.end
            continue
        right = Link(at, goal - at, space.bytes(at, FRONT)[16])
        if _holds(FlatSpace.of(space.bytes(at, right.size)), replace(right, address=0)):
            # The checksum does not cover the length, and proves where the batch ends.
            links.append(right)
            problems.append(_bad_length(space, right))
        elif told is not None and follows:
            links.append(told)  # what proved itself lies in the value of a record
            goal = told.end
        elif told is not None and told.end > stop and not _leads_on(space, goal, stop, known):
            links.append(told)  # cut by the fetch limit; the same holds for what proved itself
            break
        elif told is not None:
            links.append(told)
            if told.end > goal:
                problems.append(_bad_length(space, replace(told, size=goal - at)))
            elif told.end + FRONT <= stop:
                problems.append(no_batch(space, told.end, goal))
        else:
            problems.append(no_batch(space, at, goal))
        at = goal
    return links, problems


def _begins(space: ByteSpace, at: int, stop: int, known: dict[int, Link]) -> bool:
    """Whether a batch begins here, as far as one can tell."""
    return at in known or (at + FRONT <= stop and _looks_like_one(space, at, stop))


def _leads_on(space: ByteSpace, at: int, stop: int, known: dict[int, Link]) -> bool:
    """Whether batch follows upon batch from here to the end, of which the last one may be cut."""
    if at == stop:
        return False
    while at < stop:
        link = _link(space, at) if _begins(space, at, stop, known) else None
        if link is None:
            return False
        at = link.end
    return True


def _link(space: ByteSpace, at: int) -> Link | None:
    front = space.bytes(at, FRONT)
    size = int.from_bytes(front[8:12], signed=True) + OVERHEAD
    sane = is_sane(np.array([front[16]], np.uint8), np.array([size]))
    return Link(at, size, front[16]) if sane.all() else None


def _looks_like_one(space: ByteSpace, at: int, stop: int) -> bool:
    flat = FlatSpace.of(space.bytes(at, min(stop - at, MIN_SIZE[2])))
    return bool(looks_like_batch(flat, np.array([0])).all())


def _bad_length(space: ByteSpace, link: Link) -> Problem:
    told = int.from_bytes(space.bytes(link.address + 8, 4), signed=True) + OVERHEAD
    detail = f"the batch says that it has {told} bytes, but has {link.size}"
    return Problem("records", "bad_length", detail, offset=link.address, bytes=link.size)


def find_batches(space: ByteSpace, at: int, stop: int) -> list[Link]:
    """Every batch in [at, stop) that proves itself, in order."""
    length = max(stop - at, 0)
    flat = FlatSpace.of(space.bytes(at, length))
    effort = _EFFORT * length
    found: list[Link] = []
    behind = 0
    for begin in range(0, length, _STRETCH):
        for link in _candidates(flat, max(begin, behind), min(begin + _STRETCH, length)):
            if link.address < behind:
                continue
            effort -= link.size
            if effort < 0:
                return found
            if _proves_itself(flat, link):
                found.append(Link(at + link.address, link.size, link.magic))
                behind = link.end
    return found


def _candidates(flat: FlatSpace, begin: int, end: int) -> list[Link]:
    """What looks like a whole batch, beginning in [begin, end)."""
    if not flat.data[begin + 8 : end + 12].any():
        return []  # zeros, of which there may be many, could all be magic 0, but of no length
    at = begin + np.flatnonzero(flat.data[begin + 16 : end + 16] <= 2)
    at = at[at + FRONT <= flat.size]
    size = flat.number(at + 8, "i4").astype(np.int64) + OVERHEAD
    fits = (size > OVERHEAD) & (at + size <= flat.size)
    at, size = at[fits], size[fits]
    good = looks_like_batch(flat, at)
    at, size = at[good], size[good]
    columns = (at.tolist(), size.tolist(), flat.u8(at + 16).tolist())
    return [Link(*link) for link in zip(*columns, strict=True)]


def _proves_itself(flat: FlatSpace, link: Link) -> bool:
    if not _holds(flat, link):
        return False
    ends = link.end + FRONT > flat.size
    return ends or bool(looks_like_batch(flat, np.array([link.end])).all())


def _holds(flat: FlatSpace, link: Link) -> bool:
    """Whether the checksum of a batch that ends where `link` does is the one that it stores."""
    if link.magic >= len(MIN_SIZE) or link.size < MIN_SIZE[link.magic]:
        return False
    covered = flat.data[link.address + COVERED_FROM[link.magic] : link.end].data
    checksum, stored = (crc32c, 17) if link.magic == 2 else (crc32, 12)
    return checksum(covered) == int.from_bytes(flat.bytes(link.address + stored, 4))


def looks_like_batch(flat: FlatSpace, at: Int64) -> NDArray[np.bool_]:
    """Whether all that a header's fields can be checked for is so; cut fields pass."""

    def number(offset: Int64 | int, dtype: str) -> Int64:
        return flat.number(np.minimum(at + offset, flat.size), dtype).astype(np.int64)

    magic = flat.u8(at + 16)
    size = number(8, "i4") + OVERHEAD
    newest = magic == 2
    batch = (number(21, "u2") < 0x80) & (number(23, "i4") >= 0) & (number(57, "i4") >= 0)
    key = number(np.where(magic == 1, 26, 18), "i4")
    message = (number(17, "u1") < 0x10) & (key >= -1) & (key < size)
    return is_sane(magic, size) & np.where(newest, batch, message)

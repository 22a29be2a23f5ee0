"""JoinedFormats: the format of a capture file to which files of the other format were appended.

`cat` joins files, also compressed ones, whatever their formats are. `pcap` and `pcapng` read files
of their own format one after the other. Where the header of the other format stands in place of a
record or block, or is reached after damage, this format changes from one to the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dissector.packets.block import Bytes
from dissector.packets.formats.capture_reader import (
    NO_PACKETS,
    Interface,
    PacketColumns,
    ScanResult,
)
from dissector.packets.formats.pcap import FRONTS, Pcap
from dissector.packets.formats.pcapng import FRONT, Pcapng

_CHANGES: Final = 1 << 14
"""Changes of the format in one file that are read."""
_UNCONFIRMED: Final = 2
"""Records of pcap after a truncated one that may be possible although they are not records, and
itself. Three in a row are likely."""
_FRONT_BYTES: Final = 12
"""Bytes that identify the file header of both formats."""
_HEADER: Final = re.compile(
    b"(?s)" + re.escape(FRONT) + b".{4}(?:M<\\+\x1a|\x1a\\+<M)|" + b"|".join(map(re.escape, FRONTS))
)
"""These bytes: a section header of pcapng has its size before the byte order."""
_CUT_HEADER: Final = re.compile(
    b"(?s)(?:" + b"|".join(re.escape(front[:4]) for front in (FRONT, *FRONTS)) + b").{0,7}\\Z"
)
"""The first four bytes of a header or more at the end of a record, but not all that identify it."""


class JoinedFormats:
    """The `CaptureFormat` of a file that begins with `form`. `secrets`: see `Pcapng`."""

    def __init__(self, form: Pcap | Pcapng, secrets: list[bytes]) -> None:
        self._form: Pcap | Pcapng = form
        self._secrets = secrets
        self._earlier: list[Pcap | Pcapng] = []
        self._earlier_interfaces: list[Interface] = []

    @property
    def context(self) -> object:
        return len(self._earlier), self._form.context

    @property
    def interfaces(self) -> Sequence[Interface]:
        if not self._earlier:
            return self._form.interfaces
        return [*self._earlier_interfaces, *self._form.interfaces]

    @property
    def comments(self) -> Sequence[str]:
        return [text for form in (*self._earlier, self._form) for text in form.comments]

    @property
    def host_names(self) -> Sequence[tuple[str, str]]:
        return [pair for form in (*self._earlier, self._form) for pair in form.host_names]

    def scan(self, data: Bytes, begin: int, end: int, *, final: bool = True) -> ScanResult:
        if self._begins_other(data, begin, end):
            stop = begin + (Pcap.HEADER_BYTES if isinstance(self._form, Pcapng) else 0)
            if stop > end:
                return ScanResult(NO_PACKETS, begin, begin + 1)
            self._change(data[begin:stop].tobytes())
            if stop > begin:
                return ScanResult(NO_PACKETS, stop, stop)
        result = self._form.scan(data, begin, end)
        if result.is_broken and self._begins_other(data, result.stop, end):
            result = replace(result, is_broken=False)
        elif result.is_broken:
            result = self._up_to_other(data, begin, result)
        elif not final and isinstance(self._form, Pcap) and len(result.columns):
            result = self._up_to_unconfirmed(data, begin, result)
        if self._earlier_interfaces and len(result.columns):
            interface = result.columns.interface
            shifted = np.where(interface < 0, interface, interface + len(self._earlier_interfaces))
            columns = replace(result.columns, interface=shifted.astype(np.int32))
            result = replace(result, columns=columns)
        return result

    def search(self, data: Bytes, begin: int, end: int, *, final: bool) -> int | None:
        position = self._form.search(data, begin, end, final=final)
        header = self._search_header(data, begin, end if position is None else position)
        return position if header is None else header

    def _up_to_other(self, data: Bytes, begin: int, result: ScanResult) -> ScanResult:
        """The result of a broken chain without a last record that is inside another file: a
        truncated record leads into it, and its bytes may be a possible record of pcap."""
        start = result.columns.start[-2:]
        place = self._search_header(data, int(start[0]), result.stop) if len(start) else None
        if place is None or start[-1] < place:
            return result
        kept, stop = _first_records(result, begin, -1)
        return ScanResult(kept, stop, place, is_broken=True, problems=result.problems)

    def _up_to_unconfirmed(self, data: Bytes, begin: int, result: ScanResult) -> ScanResult:
        """The result without the last one or two records of pcap if the header of a file is in
        them: only the next bytes show whether they are whole, or lead into that file."""
        start = result.columns.start[-_UNCONFIRMED:]
        is_cut = _CUT_HEADER.search(data.data, result.stop - _FRONT_BYTES + 1, result.stop)
        place = is_cut and is_cut.start()
        if (inside := self._search_header(data, int(start[0]), result.stop)) is not None:
            place = inside
        if place is None or place < start[0]:
            return result
        kept, stop = _first_records(
            result, begin, int(start.searchsorted(place, "right")) - 1 - len(start)
        )
        return replace(result, columns=kept, stop=stop)

    def _change(self, header: bytes) -> None:
        """Begin a file of the other format. `header`: the file header of pcap."""
        self._earlier.append(self._form)
        self._earlier_interfaces += self._form.interfaces
        self._form = Pcapng(self._secrets) if isinstance(self._form, Pcap) else Pcap(header)

    def _begins_other(self, data: Bytes, at: int, end: int) -> bool:
        """Whether a file of the other format begins at a position."""
        head = data[at : min(at + _FRONT_BYTES, end)].tobytes()
        if len(head) < _FRONT_BYTES or len(self._earlier) == _CHANGES:
            return False
        if isinstance(self._form, Pcapng):
            return head[:8] in FRONTS
        return Pcapng.recognises(head) and Pcapng.can_begin(head)

    def _begins_readable(self, data: Bytes, at: int) -> bool:
        """Whether a file of the other format begins at a position, or one of pcap."""
        is_appended = isinstance(self._form, Pcap) and self._form.begins_file(data, at)
        return is_appended or self._begins_other(data, at, len(data))

    def _search_header(self, data: Bytes, begin: int, end: int) -> int | None:
        """The first position from `begin` to before `end` at which a file of the other format
        begins, or one of pcap."""
        for match in _HEADER.finditer(data.data, begin, end + _FRONT_BYTES):
            if match.start() < end and self._begins_readable(data, match.start()):
                return match.start()
        return None


def _first_records(result: ScanResult, begin: int, until: int) -> tuple[PacketColumns, int]:
    """The records of a scan up to the index `until`, and the position after them. `begin`: where
    the scan began."""
    kept = result.columns[:until]
    return kept, int(kept.start[-1] + kept.captured[-1]) if len(kept) else begin

"""Why a file cannot be read, and what to do: from its first bytes."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

import numpy as np

from dissector.packets.block import Bytes
from dissector.packets.formats.pcap import Pcap
from dissector.packets.formats.pcapng import Pcapng

HEAD: Final = 512
"""Number of first bytes that `unreadable` needs."""
_COMPRESSIONS: Final = MappingProxyType(
    {
        "xz": b"\xfd7zX",
        "bzip2": b"BZh",
        "zip": b"PK\x03\x04",
        "7-Zip": b"7z\xbc\xaf",
        "lz4 in its legacy format": b"\x02\x21\x4c\x18",
    }
)
"""The first bytes of compressed files that are not read."""
_TABLES: Final = MappingProxyType(
    {
        b"PAR1": "is a Parquet file, not a capture: read exported tables without captures",
        b"ARROW1": "is an Arrow file: of exported tables, only Parquet files are read",
        b'{"': "is JSON text: of exported tables, only Parquet files are read",
    }
)
_TAR_AT: Final = 257
"""Offset of the magic of a tar archive (POSIX.1, ustar)."""
_TEXT: Final = re.compile(rb"[\t\n\r -~\x80-\xff]{8,}")
"""Fewer bytes may be the beginning of anything."""
_LEAST_LINES: Final = 16
"""Random bytes have that many line feeds after CR, and no other, once in 256^16 times."""
CHANGED_LINE_FEEDS: Final = (
    "CR was inserted before each line feed, as `kubectl exec -t` and `ssh -t` do: capture without "
    r"-t, or restore the file with `sed 's/\r$//'`"
)


def unreadable(head: bytes) -> str:
    """Why a file with these first bytes is not a capture; its subject is the file."""
    if reason := other_format(head):
        return reason
    if head.startswith(b"\r\n\r\r\r\n"):  # pcapng begins with \n\r\r\n
        return f"is damaged: {CHANGED_LINE_FEEDS}"
    if head[_TAR_AT:].startswith(b"ustar"):
        return "is a tar archive: extract its files first"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "is UTF-16 text: PowerShell before 7.4 changes bytes that > redirects; use cmd"
    for at in range(1, len(head)):
        if Pcap.recognises(head[at:]) or Pcapng.recognises(head[at:]):
            return (
                f"has other bytes before the header of the capture, such as messages of tcpdump: "
                f"remove them with `tail -c +{at + 1}`"
            )
    if _TEXT.fullmatch(head):
        return "is text, not a pcap or pcapng file; `tcpdump -w` writes a capture"
    return "is not a pcap or pcapng file; `editcap -F pcapng` converts captures of other formats"


def other_format(head: bytes) -> str:
    """That a file with these first bytes, at least 6, is compressed or has tables, or nothing."""
    for name, magic in _COMPRESSIONS.items():
        if head.startswith(magic):
            return f"is compressed with {name}: decompress it first"
    return next((reason for magic, reason in _TABLES.items() if head.startswith(magic)), "")


def has_changed_line_feeds(data: Bytes) -> bool:
    """Whether these bytes of a capture have CR before each line feed."""
    line_feeds = np.flatnonzero(data[1:] == ord("\n"))
    return len(line_feeds) >= _LEAST_LINES and bool((data[line_feeds] == ord("\r")).all())

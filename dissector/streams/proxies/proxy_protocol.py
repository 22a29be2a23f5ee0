"""PROXY protocol: headers with which a proxy announces its client (HAProxy, versions 1 and 2).

A line of text, or a binary header with its length, precedes the client's first byte. The proxy must
send it at once, so that the first segment contains it. The header is skipped: the connection is the
proxy's.
"""

from __future__ import annotations

LINE, LONGEST_LINE = b"PROXY ", 107
"""Prefix of a line, and its largest length, CR and LF included."""
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
"""Prefix of a binary header. Command and family follow, a byte each, and a 2-byte length."""
FIXED_PART = 16
"""Bytes of a binary header before the addresses."""
FIRST_BYTES = LINE[0], SIGNATURE[0]
"""First bytes of headers."""


def header_length(data: bytes) -> int:
    """Length of the PROXY header at the start of these bytes; 0 if there is no complete header."""
    if data.startswith(LINE):
        return data[:LONGEST_LINE].find(b"\r\n") + 2 if b"\r\n" in data[:LONGEST_LINE] else 0
    if data.startswith(SIGNATURE) and len(data) >= FIXED_PART and data[12] >> 4 == 2:
        length = FIXED_PART + int.from_bytes(data[14:FIXED_PART], "big")
        return length if length <= len(data) else 0
    return 0

"""Handshakes with a proxy that connects its client to a broker: SOCKS 4, 5 and HTTP CONNECT.

After its handshake, the connection is that of client and broker. Both ends contribute. The client
sends

- the address of the broker and a user name: SOCKS 4 (openssh.com/txt/socks4.protocol), and 4A with
  a host name (socks4a.protocol);
- or a greeting, perhaps a password, and the address: SOCKS 5 (RFC 1928, RFC 1929);
- or requests with the method CONNECT (RFC 9110, section 9.3.6), again with credentials if the proxy
  asks for them (section 15.5.8).

The proxy responds.
"""

from __future__ import annotations

import re
from typing import Final

INCOMPLETE, REFUTED = -1, -2
"""Instead of a length: later bytes may complete the handshake; or there is none, or it failed."""

SOCKS_4, SOCKS, PASSWORD = 4, 5, 1
"""Versions of SOCKS, and of the exchange of user name and password inside version 5."""
CONNECT: Final = b"CONNECT "
STATUS: Final = b"HTTP/1."
FIRST_BYTES = SOCKS_4, SOCKS, CONNECT[0]
"""First bytes of clients' handshakes."""

_REQUEST_4: Final = bytes([SOCKS_4, 1])
"""First bytes of a SOCKS 4 request to connect; port and address follow."""
_GRANTED_4: Final = bytes([0, 90])
"""First bytes of the reply of 8 bytes: the proxy has connected."""
_HEAD_4: Final = 8
_LONGEST_TEXT: Final = 255
"""Maximum number of bytes of a user name or host name in SOCKS 4, which a zero ends."""
_ADDRESS_BYTES: Final = {1: 4, 4: 16}
"""Bytes of an address by its type: IPv4, IPv6."""
_NAME: Final = 3
"""Type of an address that is a name: its length, a byte, and that many bytes."""
_NO_PASSWORD, _WITH_PASSWORD = 0, 2
"""Methods of authentication that a SOCKS proxy may select."""
_GSSAPI: Final = 1
"""Another method, which is not read: all further bytes may be encrypted (RFC 1961, section 5)."""
_TOKEN: Final = bytes([1, 1])
"""First bytes of a client's message with a token of GSSAPI (RFC 1961, section 3.3)."""
_END: Final = b"\r\n\r\n"
_LINE_END: Final = b"\r\n"
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.I)
_CHUNK_SIZE: Final = re.compile(rb"([\da-f]{1,8})[ \t]*(;[^\r]*)?\r\n", re.I)
_CHUNK_LINE: Final = 1 << 10
"""Maximum number of bytes of the line before a chunk that are waited for."""
_CONTENT_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.I)


def client_length(data: bytes) -> int:
    """Length of the client's part of a handshake at the start of these bytes."""
    if data[:1] == bytes([SOCKS_4]):
        return _request_4_length(data)
    if data[:1] != bytes([SOCKS]):
        return _requests_length(data)
    try:
        at = 2 + data[1]
        if data[at] == PASSWORD:
            at += 2 + data[at + 1]
            at += 1 + data[at]
        return _address_end(data, at, command=1)
    except IndexError:
        return INCOMPLETE


def has_gssapi(data: bytes) -> bool:
    """Whether these first bytes of a client authenticate at a SOCKS 5 proxy with GSSAPI."""
    methods = data[2 : 2 + data[1]] if len(data) > 1 else b""
    is_offered = data[:1] == bytes([SOCKS]) and _GSSAPI in methods
    return is_offered and data.startswith(_TOKEN, 2 + len(methods))


def proxy_length(data: bytes) -> int:
    """Length of the proxy's part of a successful handshake at the start of these bytes."""
    if data[:1] == _GRANTED_4[:1]:
        if not (data.startswith(_GRANTED_4) or _GRANTED_4.startswith(data)):
            return REFUTED
        return _HEAD_4 if len(data) >= _HEAD_4 else INCOMPLETE
    if data[:1] != bytes([SOCKS]):
        return _responses_length(data)
    try:
        if data[1] not in (_NO_PASSWORD, _WITH_PASSWORD):
            return REFUTED
        at = 2
        if data[1] == _WITH_PASSWORD:
            if (data[2], data[3]) != (PASSWORD, 0):
                return REFUTED
            at = 4
        return _address_end(data, at, command=0)
    except IndexError:
        return INCOMPLETE


def _request_4_length(data: bytes) -> int:
    """Length of the SOCKS 4 request at the start of these bytes. A host name follows the user name
    if the address is 0.0.0.x."""
    if not (data.startswith(_REQUEST_4) or _REQUEST_4.startswith(data)):
        return REFUTED
    if len(data) < _HEAD_4:
        return INCOMPLETE
    has_name = data[4:7] == bytes(3) and data[7] > 0
    end = _HEAD_4
    for _ in range(1 + has_name):
        begin, end = end, data.find(0, end) + 1
        if end - begin > _LONGEST_TEXT + 1 or (not end and len(data) - begin > _LONGEST_TEXT):
            return REFUTED
        if not end:
            return INCOMPLETE
    return end


def _address_end(data: bytes, at: int, *, command: int) -> int:
    """The end of a SOCKS request or reply at offset `at`. `command`: 1 to connect; 0 in the reply:
    the proxy has connected."""
    if (data[at], data[at + 1], data[at + 2]) != (SOCKS, command, 0):
        return REFUTED
    kind = data[at + 3]
    size = 1 + data[at + 4] if kind == _NAME else _ADDRESS_BYTES.get(kind)
    if size is None:
        return REFUTED
    end = at + 4 + size + 2
    return end if end <= len(data) else INCOMPLETE


def _requests_length(data: bytes) -> int:
    """Length of the CONNECT requests at the start of these bytes. The bytes after them show that
    no further one follows: its response may be captured before it."""
    at = 0
    while data.startswith(CONNECT, at):
        if (end := data.find(_END, at)) < 0:
            return INCOMPLETE
        at = end + len(_END)
    if CONNECT.startswith(data[at:]):
        return INCOMPLETE
    return at or REFUTED


def _responses_length(data: bytes) -> int:
    """Length of the responses to CONNECT requests, up to the first successful one."""
    at = 0
    while data.startswith(STATUS, at):
        if (end := data.find(_END, at)) < 0:
            return INCOMPLETE
        head, at = data[at : end + len(_END)], end + len(_END)
        status = head[len(STATUS) + 2 :][:1]
        if status == b"2":  # it has no content, whatever its fields are
            return at
        if status != b"1":
            size = _CONTENT_LENGTH.search(head)
            if _CHUNKED.search(head):
                at = _chunks_end(data, at)
            elif size is not None:
                at += int(size[1])
            else:  # the content ends with the connection
                return REFUTED
            if at < 0:
                return at
    return INCOMPLETE if STATUS.startswith(data[at:]) else REFUTED


def _chunks_end(data: bytes, at: int) -> int:
    """The end of the chunked content at offset `at` (RFC 9112, section 7.1)."""
    while (line := _CHUNK_SIZE.match(data, at)) is not None:
        size = int(line[1], 16)
        if not size:
            # Trailer fields may follow, then an empty line.
            end = data.find(_END, line.end() - len(_LINE_END))
            return INCOMPLETE if end < 0 else end + len(_END)
        at = line.end() + size + len(_LINE_END)
        if at > len(data):
            return INCOMPLETE
        if not data.endswith(_LINE_END, line.end(), at):
            return REFUTED
    is_open = len(data) - at < _CHUNK_LINE and _LINE_END not in data[at:]
    return INCOMPLETE if is_open else REFUTED

"""Scores, in bits, whether bytes are a request, even if only their beginning is available.

One pass over header and body serves all APIs. It stops at a value that no client sends: a length or
count that does not fit the announced size, a boolean other than 0 and 1, a value outside its
limits. Text that is not UTF-8, or has control characters in the body, is weak evidence against a
request, since brokers accept it. Surplus bytes after the body are none, since brokers ignore them;
but a body that fills the announced size scores higher.
"""

from __future__ import annotations

import re
from typing import Final

from dissector.errors import DecodeError, TooManyElements, UnknownVersion
from dissector.protocol.explain import BodyReader, Explained
from dissector.protocol.message import client_id, request_header
from dissector.protocol.wire import Prefix, Reader, scalar
from dissector.streams.search.request_evidence import IMPOSSIBLE

UNKNOWN: Final = -24
"""The API or version has no definition, so the body cannot be checked."""
COMPLETE: Final = 16
"""The body ends where the announced size ends."""
ODD_TEXT: Final = -20
"""Text that is not UTF-8, or has control characters in the body, which few clients send. In data of
mostly zeros, any number of control characters may follow a length. No text counts then: a complete
body and a response must outweigh this."""
NO_TEXT: Final = -8
"""An incomplete request without text: small numbers and zeros are common in any data."""
NUMBERS_ONLY: Final = -16
"""A request without text whose body ends inside its size, or where it does, or has an unknown
layout: data of mostly zeros and small numbers has many."""
BATCH: Final = 16
"""An incomplete request has a record batch as large as its field: the length, the base offset 0 and
the magic 2 are 13 bytes. A producer of large batches sends little text: a client id, and in version
13 no topic."""
SURPLUS: Final = 4
"""Bytes follow the body, at most as many as it has."""
MOSTLY_SURPLUS: Final = -28
"""More bytes follow the body than it has. In data that is not a request, a body ends anywhere. A
broker would accept such a request, so further evidence can outweigh this."""
MOST_TEXT: Final = 16
"""Upper limit of one bit per printable character. Small numbers are control characters."""

_NOT_UTF8: Final = re.compile(r"[\udc80-\udcff]")
_ODD: Final = re.compile(r"[\0-\x1f\x7f\udc80-\udcff]")
"""Bytes that are not UTF-8; and control characters."""
_ALLOWED: Final = {"acks": range(-1, 16)}
"""Values of a role that clients send. Brokers up to 0.8 took any number of replicas as acks; later
ones respond to more than 1 with INVALID_REQUIRED_ACKS."""
_PRODUCE: Final = "Produce"

OFFSET_END, LENGTH_END, MAGIC_AT, BATCH_HEAD = 8, 12, 16, 17
"""Offsets in a batch: after the base offset, after the length of what follows it, and at and
after the magic."""
LONGEST_LENGTH: Final = 5
"""Maximum number of bytes of the length of a field: those of a varint of 32 bits."""


def evidence(data: bytes, size: int) -> int:
    """Bits for a request of `size` bytes that begins with `data`; the header does not count.

    A known version scores higher than an unknown one.
    """
    reader = _RequestReader(Prefix(data, size))
    bits = _bits(reader, len(data), size)
    return max(bits + ODD_TEXT * reader.has_odd_text, IMPOSSIBLE)


def _bits(reader: _RequestReader, length: int, size: int) -> int:
    """Bits for the first `length` bytes of a request of `size` bytes, in any encoding."""
    try:
        reader.request()
    except UnknownVersion:
        return min(UNKNOWN + (2 * reader.text or reader.numbers_only), 0)
    except (TooManyElements, IndexError):
        return (reader.text or NO_TEXT) + BATCH * reader.has_batch
    except DecodeError:
        return IMPOSSIBLE
    if reader.at > length:
        return (reader.text or NO_TEXT) + BATCH * reader.has_batch
    text = reader.text or reader.numbers_only
    if reader.at == size:
        return text + COMPLETE
    return text + (SURPLUS if 2 * reader.at >= size else MOSTLY_SURPLUS)


class _RequestReader(BodyReader):
    """Raises DecodeError at a value that no client sends, and IndexError where the bytes end."""

    has_odd_text = False
    """Whether text is not UTF-8, or text of the body has control characters."""
    has_batch = False
    """Whether a field of records is one batch, as its first bytes show."""
    _api = ""
    _has_null_id = False
    _text = 0

    @property
    def text(self) -> int:
        """Bits for the text so far."""
        return 0 if self.has_odd_text else min(self._text, MOST_TEXT)

    @property
    def numbers_only(self) -> int:
        """Bits for a request without text. Odd text has its own bits, and the length of a client id
        that is null has no zeros."""
        return 0 if self.has_odd_text or self._has_null_id else NUMBERS_ONLY

    def request(self) -> None:
        """Read header and body. Raises UnknownVersion after the client id."""
        try:
            layout = request_header(self)
        except UnknownVersion:
            client_id(self)
            raise
        self._api = layout.api
        self.fields(layout.fields, layout.flexible)

    def scalar(self, type: str, flexible: bool, nullable: bool) -> Reader:
        return scalar("utf8" if type == "string" else type, flexible, nullable)

    def _add(self, event: Explained) -> None:
        value, start = event.value, event.offset
        for role in event.roles:
            if value not in _ALLOWED.get(role, (value,)):
                raise DecodeError(f"{role} is {value}", offset=start, path=event.path)
        if event.type == "bool" and self.data[start] > 1:
            raise DecodeError(f"a boolean is {self.data[start]}", offset=start, path=event.path)
        if value == 0 and event.type == "[]" and self._api == _PRODUCE:
            raise DecodeError("a producer sends no empty array", offset=start, path=event.path)
        if event.type == "string" and value:
            printable = sum(map(str.isprintable, value))
            self._text += printable * (2 * printable > len(value))  # else few of many numbers
            # Before the body is the client id, whose control characters `header_evidence` scores.
            odd = _ODD if self._api else _NOT_UTF8
            self.has_odd_text |= odd.search(value) is not None
        self._has_null_id |= event.type == "string" and value is None and not self._api
        self.has_batch |= event.type == "records" and _is_batch(event)
        super()._add(event)


def _is_batch(records: Explained) -> bool:
    """Whether a producer's records are one batch of magic 2, as far as the first bytes show."""
    head: bytes = (records.value or b"")[:BATCH_HEAD]
    left = records.length - LENGTH_END - int.from_bytes(head[OFFSET_END:LENGTH_END])
    is_batch = head[:OFFSET_END] == bytes(OFFSET_END) and head[MAGIC_AT:] == b"\2"
    return is_batch and 0 < left <= LONGEST_LENGTH

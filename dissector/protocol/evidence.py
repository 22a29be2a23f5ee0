"""Evidence: whether bytes can be a request, in bits, even where only its first bytes are there.

One walk over header and body serves every API. It stops at what no client sends: a length or count
that the announced size cannot hold, text that is not UTF-8, a boolean other than 0 and 1, a value
outside its limits. Bytes behind a body that was read speak neither for nor against a request, since
brokers ignore them; but less speaks for it than where the body fills the announced size.
"""

from __future__ import annotations

from typing import Any, Final

from dissector.errors import DecodeError, TooManyElements, UnknownVersion
from dissector.protocol.explain import BodyReader
from dissector.protocol.message import client_id, request_header
from dissector.protocol.wire import Prefix, Reader, scalar

IMPOSSIBLE: Final = -128
"""Bits: these bytes do not begin a request."""
UNKNOWN: Final = -24
"""The definitions do not have the API or version, so that the body cannot be checked."""
COMPLETE: Final = 16
"""The body ends where the announced size ends."""
NO_TEXT: Final = -8
"""A part of a request contains no text: small numbers and zeros are common."""
SURPLUS: Final = 4
"""The body was read, and at most as many bytes follow as were read."""
MOSTLY_SURPLUS: Final = -12
"""The body was read, and more bytes follow than were read. The end of a body that is not a request
lies anywhere. A broker would accept such a request, so that other evidence can make up for it."""
MOST_TEXT: Final = 16
"""One bit for each printable character, up to this. Small numbers read as control characters."""

_ALLOWED: Final = {"acks": (-1, 0, 1)}
"""Values of a role that Kafka accepts."""
_PRODUCE: Final = "Produce"


def evidence(data: bytes, size: int) -> int:
    """Bits for a request of `size` bytes which begins with `data`, its header not counted.

    A request whose version is known has more of them than one whose version is not.
    """
    walk = _RequestReader(Prefix(data, size))
    try:
        walk.request()
    except UnknownVersion:
        return min(UNKNOWN + 2 * walk.text, 0)
    except (TooManyElements, IndexError):
        return walk.text or NO_TEXT
    except DecodeError:
        return IMPOSSIBLE
    if len(data) < size:
        return walk.text or NO_TEXT
    if walk.at == size:
        return walk.text + COMPLETE
    if 2 * walk.at >= size:
        return walk.text + SURPLUS
    return (walk.text or NO_TEXT) + MOSTLY_SURPLUS


class _RequestReader(BodyReader):
    """Raises DecodeError at what no client sends, and IndexError where the bytes end."""

    _api = ""
    _text = 0

    @property
    def text(self) -> int:
        """Bits for the text that was read."""
        return min(self._text, MOST_TEXT)

    def request(self) -> None:
        """Read header and body. Raises UnknownVersion behind the client id."""
        try:
            layout = request_header(self)
        except UnknownVersion:
            client_id(self)
            raise
        self._api = layout.api
        self.fields(layout.fields, layout.flexible)

    def scalar(self, type: str, flexible: bool, nullable: bool) -> Reader:
        return scalar("utf8" if type == "string" else type, flexible, nullable)

    def _event(
        self, path: str, name: str, type: str, value: Any, start: int, depth: int,
        roles: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        for role in roles:
            if value not in _ALLOWED.get(role, (value,)):
                raise DecodeError(f"{role} is {value}", offset=start, path=path)
        if type == "bool" and self.data[start] > 1:
            raise DecodeError(f"a boolean is {self.data[start]}", offset=start, path=path)
        if value == 0 and type == "[]" and self._api == _PRODUCE:
            raise DecodeError("a producer sends no empty array", offset=start, path=path)
        if type == "string" and value:
            self._text += sum(map(str.isprintable, value))
        super()._event(path, name, type, value, start, depth, roles)

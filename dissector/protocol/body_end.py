"""The end of a message's body, even if only the first bytes of the message are available.

Not in `message`, which is imported without numpy.
"""

from __future__ import annotations

import numpy as np

from dissector import _native
from dissector.errors import DecodeError
from dissector.protocol.decoder_program import program
from dissector.protocol.explain import BodyReader
from dissector.protocol.limits import most_elements
from dissector.protocol.message import request_header, response_header
from dissector.protocol.wire import Prefix


def body_end(data: bytes, size: int, request: tuple[int, int] | None = None) -> int:
    """Offset of the end of the body in a message of `size` bytes that begins with `data`.

    `request`: for a response, API key and version of its request. Returns `size` if the end cannot
    be known without further bytes. Raises UnknownVersion, or DecodeError if it is not a message.
    """
    reader = BodyReader(Prefix(data, size))
    try:
        body_layout = (
            request_header(reader) if request is None else response_header(reader, *request)
        )
    except IndexError:
        return size
    end = _native.find_body_end(
        np.frombuffer(data, np.uint8), program(body_layout, frozenset()).nodes,
        body_layout.flexible, reader.at, size, most_elements(size - reader.at),
    )  # fmt: skip
    if end < 0:
        raise DecodeError("an impossible body", offset=reader.at)
    return end

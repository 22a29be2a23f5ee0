"""Kafka network traffic as tables.

decode_request, decode_response    one frame to a `Message`
"""

from __future__ import annotations

from dissector.errors import (
    CaptureError,
    DecodeError,
    DefinitionError,
    DissectorError,
    UnknownVersion,
)
from dissector.protocol.message import Message, decode_request, decode_response

__all__ = [
    "CaptureError",
    "DecodeError",
    "DefinitionError",
    "DissectorError",
    "Message",
    "UnknownVersion",
    "decode_request",
    "decode_response",
]

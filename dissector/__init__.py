"""Kafka network traffic as tables.

decode_request, decode_response    one frame to a `Message`
decode_records                     the bytes of a `records` field to a list of `Batch`
open_capture                       files to a `Capture`: exchanges one by one, or tables

The way of the data: packets, streams, protocol (with records), conversation, rows of tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dissector.errors import (
    CaptureError,
    DecodeError,
    DefinitionError,
    DissectorError,
    UnknownVersion,
)
from dissector.protocol.message import Message, decode_request, decode_response

if TYPE_CHECKING:
    from dissector.capture import Capture, open_capture
    from dissector.records.decode import Batch, Record, decode_records

__all__ = [
    "Batch",
    "Capture",
    "CaptureError",
    "DecodeError",
    "DefinitionError",
    "DissectorError",
    "Message",
    "Record",
    "UnknownVersion",
    "decode_records",
    "decode_request",
    "decode_response",
    "open_capture",
]


def __getattr__(name: str) -> Any:
    """Load what needs NumPy and Arrow when it is asked for: they take longer than all the rest."""
    if name in ("Capture", "open_capture"):
        from dissector import capture

        return getattr(capture, name)
    if name in ("Batch", "Record", "decode_records"):
        from dissector.records import decode

        return getattr(decode, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

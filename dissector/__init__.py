"""Kafka network traffic as tables.

decode_request, decode_response    one frame to a `Message`
decode_records                     the bytes of a `records` field to a list of `Batch`
open_capture                       files to a `Capture`: exchanges one by one, or tables

Data flows through these packages:

packets     capture files and interfaces to blocks of packets
streams     blocks of packets to frames, with tls for encrypted streams
exchanges   frames to requests joined with their responses
protocol    message bodies to fields; records: record batches to records
tables      all of these to rows
pipeline    the driver of all stages; runs: the driver with several processes
capture     the public facade
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from dissector.errors import (
    CaptureError,
    DecodeError,
    DefinitionError,
    DissectorError,
    UnknownVersion,
)

if TYPE_CHECKING:
    from dissector.capture import Capture, OpenOptions, open_capture
    from dissector.exchanges.exchange import Exchange
    from dissector.protocol.explain import Explained, Explanation
    from dissector.protocol.message import Message, decode_request, decode_response
    from dissector.protocol.notation import Direction
    from dissector.records.decode import Batch, Record, decode_records

    __version__: str

__all__ = [
    "Batch",
    "Capture",
    "CaptureError",
    "DecodeError",
    "DefinitionError",
    "Direction",
    "DissectorError",
    "Exchange",
    "Explained",
    "Explanation",
    "Message",
    "OpenOptions",
    "Record",
    "UnknownVersion",
    "__version__",
    "decode_records",
    "decode_request",
    "decode_response",
    "open_capture",
]

_LAZY: Final = MappingProxyType(
    {
        "Batch": "dissector.records.decode",
        "Capture": "dissector.capture",
        "Direction": "dissector.protocol.notation",
        "Exchange": "dissector.exchanges.exchange",
        "Explained": "dissector.protocol.explain",
        "Explanation": "dissector.protocol.explain",
        "Message": "dissector.protocol.message",
        "OpenOptions": "dissector.capture",
        "Record": "dissector.records.decode",
        "decode_records": "dissector.records.decode",
        "decode_request": "dissector.protocol.message",
        "decode_response": "dissector.protocol.message",
        "open_capture": "dissector.capture",
    }
)
"""Modules that are imported when a name of theirs is first used: most take time, or need Arrow."""


if not TYPE_CHECKING:  # type checkers would take every name for an attribute

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return getattr(import_module(_LAZY[name]), name)
        if name == "__version__":
            return _version()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kafka-dissector")
    except PackageNotFoundError:  # a source tree that is not installed
        return "unknown"

"""Seeds of fuzzing: small pieces of the committed captures.

From each capture its first packets, as a file of its own; one frame of each API, version and
direction; the `records` fields that these carry; and what the ends of TLS connections sent.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import zstandard

from dissector import DissectorError, open_capture
from dissector.packets import open_packets
from tests.captures.recorded import CAPTURES, RECORDINGS, unpacked

TLS = CAPTURES / "kafka-4-tls.pcap.zst"
TLS_KEYS = CAPTURES / "kafka-4-tls.keys.log"
TLS_PORT = 9092
FEW = (
    "kafka-3-java-0-8.pcap.zst",
    "kafka-4-cut.pcap.zst",
    "kafka-4-group-share.pcap.zst",
    "kafka-4-net-vxlan.pcap.zst",
    "kafka-4-sasl.pcap.zst",
    "kafka-4-tls-secrets.pcapng.zst",
    "librdkafka-mock-errors.pcap",
    "librdkafka-mock-transactions.pcapng",
)
"""Captures that stand for all where time is short."""
HEAD = 4_000
"""Bytes of a capture's beginning."""
FRAME = 4_000
"""Bytes of the longest frame, or `records` field."""
TLS_BYTES = 6_000
"""Bytes of a TLS connection's beginning."""

_PACK: tuple[Callable[[bytes], bytes], ...] = (
    gzip.compress,
    zstandard.compress,
    lz4.frame.compress,
)


def captures(few: bool) -> list[Path]:
    """The captures to take seeds from."""
    return [path for path in RECORDINGS if not few or path.name in FEW]


def heads(few: bool) -> Iterator[bytes]:
    """The first packets of captures, and some of them compressed."""
    for number, path in enumerate(captures(few)):
        head = unpacked(path)[:HEAD]
        yield head
        if number < len(_PACK):
            yield _PACK[number](head)


@cache
def frames(few: bool) -> list[tuple[bytes, bytes]]:
    """Requests and their responses: of each API and version the first ones that are short."""
    pairs: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    for path in captures(few):
        for exchange in open_capture(path).exchanges():
            key = (exchange.api_key, exchange.api_version)
            pair = (exchange.request_frame or b"", exchange.response_frame or b"")
            if None not in key and key not in pairs and max(map(len, pair)) <= FRAME:
                pairs[key] = pair  # type: ignore[index]
    return list(pairs.values())


def requests(few: bool) -> Iterator[bytes]:
    """Frames of requests."""
    return (request for request, _ in frames(few) if request)


def responses(few: bool) -> Iterator[bytes]:
    """API key and version, as the request has them, and the frame of the response."""
    return (request[:4] + response for request, response in frames(few) if response)


def records(few: bool) -> Iterator[bytes]:
    """A byte, and a `records` field."""
    seen: set[bytes] = set()
    for path in captures(few):
        for exchange in open_capture(path).exchanges():
            for message in ("request", "response"):
                if exchange.api in ("Produce", "Fetch", "ShareFetch"):
                    for field in _records(_body(exchange, message)):
                        # Magic, codec and about how long it is.
                        kind = field[16:17] + field[22:23] + len(field).bit_length().to_bytes()
                        if len(field) <= FRAME and kind not in seen:
                            seen.add(kind)
                            yield b"\0" + field


def _body(exchange: Any, message: str) -> Any:
    try:
        decoded = getattr(exchange, message)
    except DissectorError:
        return None
    return decoded and decoded.body


def _records(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "records" and each:
                yield each
            else:
                yield from _records(each)
    elif isinstance(value, list):
        for each in value:
            yield from _records(each)


def tls(few: bool) -> Iterator[bytes]:
    """The data of both ends of a TLS connection: a byte for the end, two of length, the bytes."""
    source = open_packets([TLS])
    sent: dict[int, bytes] = {}
    while (block := source.read(0)) is not None:
        is_client = block.dst_port == TLS_PORT
        port = np.where(is_client, block.src_port, block.dst_port)
        for row in np.flatnonzero((is_client | (block.src_port == TLS_PORT)) & (block.length > 0)):
            at, length = int(block.payload[row]), int(block.length[row])
            part = block.data[at : at + length].tobytes()
            before = sent.get(int(port[row]), b"")
            if len(before) + length < TLS_BYTES:
                sent[int(port[row])] = (
                    before + bytes([not is_client[row]]) + length.to_bytes(2, "big") + part
                )
    yield from list(sent.values())[: 3 if few else None]

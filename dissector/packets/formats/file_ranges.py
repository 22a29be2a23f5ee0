"""Byte ranges of a capture file, each read as if it were a separate file.

To read a large file with several readers, it is split at guessed positions: `boundary` searches for
the next record there, as after damage. Readers validate the guess: it is right if the range before
it ends at the end of a packet, without a problem. Every range knows the facts at the head of the
file that its packets depend on (the interfaces of a pcapng file), so `CaptureReader.context` must
be equal at the end of all ranges. A section or interface in the middle of the file would be unknown
after it.

A compressed file can only be read from its beginning, so it is one range.
"""

from __future__ import annotations

import os

import numpy as np

from dissector.errors import CaptureError, reason
from dissector.packets.block import PAD, Bytes
from dissector.packets.formats.byte_input import RangeSource
from dissector.packets.formats.capture_reader import (
    PACKET_LIMIT,
    CaptureFormat,
    CaptureReader,
    ReadState,
)
from dissector.packets.formats.decompression import CODECS
from dissector.packets.formats.joined_formats import JoinedFormats
from dissector.packets.formats.pcap import Pcap
from dissector.packets.formats.pcapng import Pcapng
from dissector.packets.formats.remote import open_file

HEAD_BYTES = 1 << 16
"""Bytes of a file that must contain all facts that its packets depend on."""
WINDOW = 4 * PACKET_LIMIT
"""Bytes after a position within which the next record must begin."""


def size_of(path: str) -> int | None:
    """Size in bytes of a file that can be read in parts; None if it must be read as a whole."""
    with open_file(path) as file:
        head = file.read(4) or b""
        if any(head.startswith(codec.magic) for codec in CODECS):
            return None
        return file.seek(0, os.SEEK_END)


def boundary(path: str, at: int) -> int | None:
    """Position of the first likely record at or after byte `at`; None if there is none."""
    form = primed(path, [])
    with open_file(path) as file:
        final = at + WINDOW >= file.seek(0, os.SEEK_END)
        file.seek(at)
        data = _array(file.read(WINDOW) or b"")
    record_at = form.search(data, 0, len(data) - PAD, final=final)
    return None if record_at is None else at + record_at


def start_of(path: str, secrets: list[bytes]) -> ReadState:
    """The state before the first record of a file, which adds TLS secrets to `secrets`."""
    return _start(path, secrets)[0]


def primed(path: str, secrets: list[bytes]) -> CaptureFormat:
    """The format of a file, after it has read the records at the file's head.

    `secrets`: takes the TLS key logs that the format reads, now and later.
    """
    start, head = _start(path, secrets)
    data, at = _array(head), start.offset
    while (scan := start.form.scan(data, at, len(head))).stop > at:
        at = scan.stop
    return start.form


def last_time(path: str) -> int | None:
    """The latest time of the packets at the end of a file, ns; None if there is no packet."""
    size = size_of(path)
    at = None if size is None else boundary(path, max(size - WINDOW, Pcap.HEADER_BYTES))
    if size is None or at is None:
        return None
    state = ReadState(primed(path, []), at)
    records = CaptureReader(path, RangeSource(path, at, size), state).read(0, WINDOW)
    return int(records.columns.time.max()) if records and len(records.number) else None


def _start(path: str, secrets: list[bytes]) -> tuple[ReadState, bytes]:
    """The state before the first record, and the first bytes of the file.

    Raises CaptureError if the file cannot be read any more.
    """
    try:
        with open_file(path) as file:
            head = file.read(HEAD_BYTES) or b""
    except OSError as error:
        raise CaptureError(f"{path}: {reason(error)}") from error
    if Pcap.recognises(head):
        form = JoinedFormats(Pcap(head[: Pcap.HEADER_BYTES]), secrets)
        return ReadState(form, Pcap.HEADER_BYTES), head
    return ReadState(JoinedFormats(Pcapng(secrets), secrets), 0), head


def _array(data: bytes) -> Bytes:
    return np.frombuffer(data + bytes(PAD), np.uint8)

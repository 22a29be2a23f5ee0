"""Several passes over the same captures, for what rows of tables do not contain."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Final

from analysis.input.exported import is_exported
from dissector import arguments
from dissector.capture import Capture, Paths, captures_and_segments, checked_memory, checked_ports
from dissector.errors import CaptureError, DissectorError
from dissector.packets import open_packets
from dissector.packets.files import BLOCK_BYTES
from dissector.packets.formats.byte_input import is_stream
from dissector.packets.paths import input_name
from dissector.pipeline import Pipeline, Progress
from dissector.stages import MEMORY_SHARE
from dissector.streams.streaming import DEFAULT_MEMORY

_FIRST_BYTES: Final = 1 << 16
"""Bytes of a block that is read for its first packet."""


def capture_files(paths: Paths) -> list[str]:
    """The captures at these paths. Raises CaptureError for exported tables."""
    named = arguments.paths("paths", paths)
    if is_exported(named):
        names = ", ".join(map(str, named))
        raise CaptureError(f"{names}: exported tables do not contain packets; use the capture")
    files, _ = captures_and_segments(named)
    return files


def check_files(paths: Paths) -> list[str]:
    """The captures at these paths, for several passes. Raises CaptureError if one can be read only
    once, or for exported tables."""
    files = capture_files(paths)
    for file in files:
        if is_stream(file):
            raise CaptureError(
                f"{input_name(file)} can be read only once; write it to a file first"
            )
    return files


def check_repeatable(source: object, option: str, remedy: str) -> None:
    """Raises DissectorError if the source is a capture that can be read only once."""
    if isinstance(source, Capture) and any(map(is_stream, source.paths)):
        raise DissectorError(f"{option} needs a second pass: {remedy}")


def open_pass(
    files: list[str], *, ports: Collection[int] | None = None,
    keylog: str | os.PathLike[str] | None = None, memory: int = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> Pipeline:  # fmt: skip
    """A pipeline for one pass; the options are those of `open_capture`.

    Raises CaptureError, and DissectorError for wrong options.
    """
    ports, memory = checked_ports(ports), checked_memory(memory)
    block_bytes = min(BLOCK_BYTES, memory // MEMORY_SHARE)
    source = open_packets(files, block_bytes=block_bytes)
    return Pipeline(source, ports=ports, keylog=keylog, memory=memory, progress=progress)


def first_time(paths: Sequence[str]) -> int | None:
    """The time of the first TCP packet in captures, ns; None if there is none, or it can be read
    only once, as from standard input."""
    captures, _ = captures_and_segments(paths)
    if not captures or any(map(is_stream, captures)):
        return None
    source = open_packets(captures, block_bytes=_FIRST_BYTES)
    try:
        while (block := source.read(0)) is not None:
            if len(block):
                return int(block.time.min())
    finally:
        source.close()
    return None

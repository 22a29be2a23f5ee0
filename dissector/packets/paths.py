"""Finds the captures that a list of paths names, and opens them.

A path is a file, a pipe, ``-`` for standard input, a pattern (`glob`, with ``**``), or a folder
with all captures in it, at any depth. The first bytes identify a capture, never its name. A file
that is passed by name and is not a capture is an error; in a folder it is ignored, unless it has
the name of a capture: its header may be damaged, or its compression may not be supported.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Final

import numpy as np

from dissector.errors import CaptureError, reason
from dissector.packets.block import PAD, Int64
from dissector.packets.formats.byte_input import ByteInput
from dissector.packets.formats.capture_reader import CaptureReader, ReadState
from dissector.packets.formats.decompression import CODECS
from dissector.packets.formats.joined_formats import JoinedFormats
from dissector.packets.formats.pcap import Pcap
from dissector.packets.formats.pcapng import Pcapng
from dissector.packets.formats.unreadable_files import HEAD, other_format, unreadable

STANDARD_INPUT = "-"
_CAPTURE_NAME: Final = re.compile(r"(?i)\.(pcap|pcapng|cap)\d*(\.(gz|zst|lz4|xz|bz2|zip))?$")
"""tcpdump -C appends a number."""


def input_name(path: str) -> str:
    """The name of an input in messages, on one line."""
    return "standard input" if path == STANDARD_INPUT else path.replace("\n", "\\n")


def find(
    paths: Sequence[str | os.PathLike[str]],
    also: Callable[[str], bool] = lambda path: False,
) -> list[str]:
    """The files that `paths` name, each once; those of a pattern or a folder in order of name.

    Unreadable files are included: opening them raises the error. From a folder, captures and files
    that `also` accepts are included.
    """
    files: dict[str, str] = {}
    real_folder = cache(os.path.realpath)  # until this call ends; a folder may have many files
    # pathlib takes longer than all else here.
    for path in paths:
        for named in matches(os.fspath(path)):
            for file in _below(named, also) if os.path.isdir(named) else [named]:  # noqa: PTH112
                folder, _, name = file.rpartition("/")
                if file == STANDARD_INPUT:
                    real = file
                elif os.path.islink(file):  # noqa: PTH114 - faster
                    real = os.path.realpath(file)
                else:
                    real = f"{real_folder(folder or '/' * file.startswith('/'))}/{name}"
                files.setdefault(real, file)
    return list(files.values())


def matches(path: str) -> list[str]:
    """The matches of a pattern; the path itself if it is not a pattern or nothing matches."""
    if path == STANDARD_INPUT or os.path.lexists(path):
        return [path]
    return sorted(glob.glob(path, recursive=True)) or [path]  # noqa: PTH207 - may be absolute


def _below(folder: str, also: Callable[[str], bool]) -> Iterator[str]:
    """All captures in a folder and its subfolders, and unreadable files and folders."""
    errors: list[OSError] = []
    for parent, folders, files in os.walk(Path(folder), onerror=errors.append):
        folders.sort()
        for file in sorted(files):
            path = os.path.join(parent, file)  # noqa: PTH118 - pathlib takes longer than reading
            if os.path.isfile(path) and (_may_be_capture(path) or also(path)):  # noqa: PTH113
                yield path
    yield from (str(error.filename) for error in errors)


def _may_be_capture(path: str) -> bool:
    try:
        with open(path, "rb", 0) as file:  # noqa: PTH123 - faster
            head = file.read(4)
        if Pcap.recognises(head) or Pcapng.recognises(head):
            return True
        source = ByteInput(path)
    except OSError:
        return True
    head = source.take(4)
    source.close()
    if Pcap.recognises(head) or Pcapng.recognises(head) or source.damage is not None:
        return True
    # tcpdump creates an empty file, and writes its header with the first packets.
    return bool(head and _CAPTURE_NAME.search(path))


def no_capture(*paths: str | os.PathLike[str]) -> str:
    """The error that these paths, folders or patterns, name no capture file. It names a file that
    is compressed in another format, or has tables."""
    names = (input_name(os.fspath(path)) for path in paths)
    text = f"{', '.join(names)}: there is no capture file"
    folders = (folder for path in paths for folder in matches(os.fspath(path)))
    for parent, _, files in (each for folder in folders for each in os.walk(folder)):
        for path in (Path(parent, file) for file in sorted(files)):
            with suppress(OSError), path.open("rb", 0) as file:
                if detail := other_format(file.read(6)):
                    return f"{text}; {input_name(str(path))} {detail}"
    return text


def open_reader(path: str, secrets: list[bytes]) -> CaptureReader:
    """A reader of the capture at `path`. TLS secrets in it are added to `secrets`.

    Raises CaptureError with the reason if it is not a readable capture.
    """
    name = input_name(path)
    try:
        source = ByteInput(path)
    except IsADirectoryError as error:
        raise CaptureError(no_capture(path)) from error
    except OSError as error:
        raise CaptureError(f"{name}: {reason(error)}") from error
    try:
        return _recognise(path, source, secrets)
    except CaptureError as error:
        source.close()
        raise CaptureError(f"{name} {error}") from error


def first_times(path: str, size: int) -> tuple[int, Int64, bool] | None:
    """Size of a plain pcap file, times of the packets in its first `size` bytes, and whether these
    are all of its bytes.

    None for other files, and if there is no packet, or damage. A `CaptureReader` takes three times
    as long, which counts if there are many files.
    """
    try:
        if not os.path.isfile(path):  # noqa: PTH113 - faster
            return None
        with FileIO(path) as file:
            data = np.empty(size + PAD, np.uint8)
            end = file.readinto(data[:size].data)
            total = file.seek(0, os.SEEK_END)
    except OSError:
        return None
    begin = Pcap.HEADER_BYTES
    head = data[: min(end, begin)].tobytes()
    if len(head) < begin or not Pcap.recognises(head):
        return None
    scan = Pcap(head).scan(data, begin, end)
    is_whole = total == end
    if scan.is_broken or not len(scan.columns.time) or (is_whole and scan.stop < end):
        return None
    return total, scan.columns.time, is_whole


def _recognise(path: str, source: ByteInput, secrets: list[bytes]) -> CaptureReader:
    """The reader for the format of the first bytes. Errors lack their subject, the file's name."""
    head = source.take(4)
    if Pcap.recognises(head):
        head += source.take(Pcap.HEADER_BYTES - 4)
        if len(head) == Pcap.HEADER_BYTES:
            form = JoinedFormats(Pcap(head), secrets)
            return CaptureReader(path, source, ReadState(form, len(head)))
    elif Pcapng.recognises(head):
        head += source.take(Pcapng.HEADER_BYTES - 4)
        if len(head) == Pcapng.HEADER_BYTES and Pcapng.can_begin(head):
            form = JoinedFormats(Pcapng(secrets), secrets)
            return CaptureReader(path, source, ReadState(form, 0), head=head)
    if source.damage:
        raise CaptureError(f"cannot be read: {source.damage}")
    if not head:
        raise CaptureError("is empty" + (" inside its compression" if source.consumed else ""))
    if any(head.startswith(codec.magic) for codec in CODECS):
        raise CaptureError("is compressed twice: decompress it first")
    if not Pcap.recognises(head) and not Pcapng.recognises(head):
        following = bytearray(HEAD)
        size, _ = source.fill(memoryview(following))
        raise CaptureError(unreadable(head + following[:size]))
    if Pcapng.recognises(head) and len(head) == Pcapng.HEADER_BYTES:
        raise CaptureError("is not a capture file: its pcapng section header is damaged")
    raise CaptureError("is not a capture file: it ends within its file header")

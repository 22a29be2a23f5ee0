"""Write the packets of chosen exchanges to a pcapng file.

The input is read three times: for the places of messages in their streams, for the packets, and to
write them. So it must be files. The written file is read, too, before it gets its name: if a
chosen exchange cannot be found in it without the messages around it, the gaps of its connection
are closed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import pyarrow as pa

import dissector
from analysis.cutting.messages import Messages, messages_of
from analysis.cutting.packets import PacketChoice
from analysis.cutting.writing import PacketCount, packet_blocks
from analysis.export.files import output_file, partial
from analysis.input.passes import check_files, open_pass
from analysis.input.times import SECOND
from analysis.names.addresses import endpoint
from analysis.sql.query import arrow_table
from analysis.temporary import temporary_folder
from dissector.arguments import boolean, number, path, text
from dissector.arrays import value
from dissector.capture import Capture, Paths
from dissector.errors import DissectorError
from dissector.exchanges.topic_names import comment
from dissector.packets import open_packets
from dissector.packets.formats.pcapng_writer import secrets_block, section_header
from dissector.streams.detection import declared
from dissector.streams.streaming import DEFAULT_MEMORY
from dissector.tables.arrow import with_times

if TYPE_CHECKING:
    import pandas as pd

IDENTITY: Final = ("client_ip", "client_port", "correlation_id", "status", "request_end_time",
                   "response_time")  # fmt: skip
"""Columns that an exchange has in a cut, too."""
_LONGEST: Final = 1 << 32
"""Maximum number of seconds of context; the times of pcap and their sums with it fit in 64 bits."""


@value
class CutResult:
    """What a cut contains."""

    exchanges: int
    connections: int
    packets: int
    trimmed: int
    """Packets from which bytes of other messages were removed."""
    secrets: int
    """Lines of TLS secrets."""
    encrypted: int
    """Connections with TLS."""
    closed: int
    """Connections whose sequence numbers were changed, to close the gaps of other messages."""
    unreadable: int
    """Exchanges that only the messages around them make readable; a context helps."""


def cut(
    paths: Paths, exchanges: pd.DataFrame | pa.Table, output: str | os.PathLike[str], *,
    context: float | None = None, secrets: bool = False, title: str = "", overwrite: bool = False,
    ports: Collection[int] | None = None, keylog: str | os.PathLike[str] | None = None,
    memory: int = DEFAULT_MEMORY,
) -> CutResult:  # fmt: skip
    """Write the packets of exchanges to `output`, as pcapng.

    `exchanges`: rows of the table `exchanges` of these captures. `context`: seconds; also write all
    packets of their connections within this time before or after a message. `secrets`: also write
    the TLS secrets of their connections. `title`: a comment on the file. `ports`, `keylog`,
    `memory`: as in `open_capture`; use the same ones for the rows.

    Raises CaptureError if a path is not a file, DissectorError if a row is not in the captures or
    there is none, or `output` is a device or a pipe, FileExistsError if `output` exists and
    `overwrite` is False.
    """
    files = check_files(paths)
    output = Path(path("output", output))
    check_output(output)
    seconds = None if context is None else min(number("context", context, 0), _LONGEST)
    nanoseconds = None if seconds is None else round(seconds * SECOND)
    title = text("title", title)
    secrets, overwrite = boolean("secrets", secrets), boolean("overwrite", overwrite)
    options: dict[str, Any] = {"ports": ports, "keylog": keylog, "memory": memory}
    located = open_pass(files, **options)
    exchanges = with_times(arrow_table("exchanges", exchanges), pa.int64())
    messages = messages_of(exchanges, located.located_exchanges())
    if not len(messages):
        raise DissectorError("no exchange to cut: none of these rows is in the captures")
    topics = {topic for names in exchanges["topics"].to_pylist() for topic in names or ()}
    comments = [title] if title else []
    comments += [comment(*each) for each in located.names.names.items() if each[1] in topics]
    encrypted = frozenset(located.encrypted_connections)
    cutter = _Cutter(files, exchanges, messages, encrypted, nanoseconds, secrets, comments, options)
    with output_file(output, overwrite=overwrite) as sink:
        return cutter.result(cutter.write_best(sink, partial(output)))


def check_output(output: Path) -> None:
    """Raises DissectorError if `cut` could not read what it has written to `output`."""
    if output.exists() and not output.is_file():
        raise DissectorError(
            f"{output} is not a regular file: choose a file, which cut reads again"
        )


@value
class _Written:
    """What a file contains."""

    packets: PacketCount
    secrets: int
    closed: Collection[int]
    """The connections whose gaps are closed."""
    lost: Counter[int]
    """The number of exchanges that cannot be read in it, by connection."""
    fragmented: set[int]
    """The connections with IP fragments, which are written unchanged."""


@value
class _Cutter:
    """Writes the file of a cut; the fields are as in `cut`."""

    files: list[str]
    exchanges: pa.Table
    messages: Messages
    encrypted: Collection[int]
    context: int | None
    """ns."""
    with_secrets: bool
    comments: Sequence[str]
    options: dict[str, Any]

    def write_best(self, sink: BinaryIO, path: Path) -> _Written:
        """Write the file, with those gaps closed that otherwise cost exchanges.

        `path`: the name of the file while it is written.
        """
        first = self._write(sink, path)
        gaps = set(first.lost) - set(self.encrypted) - first.fragmented
        if not gaps or self.context is not None:
            return first
        closed = self._write(sink, path, gaps)
        improved = {each for each in gaps if closed.lost[each] < first.lost[each]}
        return closed if improved == gaps else self._write(sink, path, improved)

    def _write(self, sink: BinaryIO, path: Path, closed: Collection[int] = ()) -> _Written:
        """Write the file again, and read it. `closed`: connections whose gaps are closed."""
        choice = PacketChoice(self.messages, self.encrypted, self.context, closed)
        read = open_pass(self.files, **self.options)
        read.observe_packets(choice.observe)
        source = open_packets(self.files)
        keys = _secrets(read.secrets, self.options["keylog"], choice.sessions)
        written_keys = keys if self.with_secrets else []
        ends = [self.messages.ends[each] for each in sorted(closed)]
        comments = [*self.comments, *starmap(declared.comment, ends)]
        comments += [_closing(*client) for client, _ in ends]
        count = PacketCount()
        sink.seek(0)
        sink.truncate()
        sink.write(section_header(f"kafka-dissector {dissector.__version__}", comments))
        if written_keys:
            sink.write(secrets_block(_lines(keys)))
        for block in packet_blocks(source, choice, count):
            sink.write(block)
        sink.flush()
        with temporary_folder() as folder:
            keylog = Path(folder, "keys.log")
            keylog.write_bytes(_lines(keys))  # the secrets may be in the captures only
            written = dissector.open_capture(
                path, ports=self.options["ports"], keylog=keylog if keys else None
            )
            lost = _unreadable(self.exchanges, written)
        return _Written(count, len(written_keys), closed, lost, choice.fragmented)

    def result(self, written: _Written) -> CutResult:
        ends, count = self.messages.ends, written.packets
        return CutResult(
            self.messages.exchanges, len(ends), count.packets, count.trimmed, written.secrets,
            len(ends.keys() & self.encrypted), len(written.closed), written.lost.total(),
        )  # fmt: skip


def _closing(ip: str, port: int) -> str:
    """A comment on a file in which the gaps of a connection are closed."""
    return (
        f"Sequence numbers of the connection of {endpoint(ip, port)} are changed: those of removed "
        "messages are left out"
    )


def _unreadable(exchanges: pa.Table, written: Capture) -> Counter[int]:
    """The number of exchanges that are not in the cut, by connection."""
    identities: set[tuple[Any, ...]] = set()
    for _, batch in written.stream(["exchanges"]):
        identities.update(_identities(batch))
    connections = exchanges["connection_id"].to_pylist()
    rows = zip(connections, _identities(exchanges), strict=True)
    return Counter(connection for connection, each in rows if each not in identities)


def _identities(rows: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = with_times(rows.select(IDENTITY), pa.int64()).columns
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _secrets(
    embedded: Sequence[bytes], keylog: str | os.PathLike[str] | None, sessions: Collection[str]
) -> list[bytes]:
    """The lines of key logs that belong to these connections. `embedded`: key logs in captures."""
    texts = [*embedded, *([Path(keylog).read_bytes()] if keylog else [])]
    lines = [line for text in texts for line in text.splitlines()]
    return list(dict.fromkeys(line for line in lines if _session(line) in sessions))


def _lines(keys: Sequence[bytes]) -> bytes:
    return b"".join(key + b"\n" for key in keys)


def _session(line: bytes) -> str:
    """The client random in a line of a key log; the session id if a Java agent wrote the line."""
    words = line.decode(errors="replace").split()
    return words[1].lower().removeprefix("session-id:") if len(words) == 3 else ""

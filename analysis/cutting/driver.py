"""Write the packets of chosen exchanges to a pcapng file.

The input is read three times: for the places of messages in their streams, for the packets, and to
write them. So it must be files.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

import dissector
from analysis.cutting.messages import messages_of
from analysis.cutting.packets import PacketChoice
from analysis.cutting.writing import PacketCount, packet_blocks
from analysis.export.files import output_file
from analysis.input.passes import check_files, open_pass
from dissector.capture import Capture, Paths
from dissector.errors import DissectorError
from dissector.exchanges.topic_names import comment
from dissector.packets import open_packets
from dissector.packets.files import FileSource
from dissector.packets.pcapng_writer import secrets_block, section_header
from dissector.streams.streaming import DEFAULT_MEMORY
from dissector.tables import EXCHANGES

if TYPE_CHECKING:
    import pandas as pd

SECOND: Final = 10**9
IDENTITY: Final = ("client_ip", "client_port", "correlation_id", "status", "request_end_time",
                   "response_time")  # fmt: skip
"""Columns that an exchange has in a cut, too."""


@dataclass(frozen=True, slots=True)
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
    packets of their connections that are at most this long before or after a message. `secrets`:
    also write the TLS secrets of their connections. `title`: a comment on the file. `ports`,
    `keylog`, `memory`: as in `open_capture`; use the same ones for the rows.

    Raises CaptureError if a path is not a file, DissectorError if a row is not in the captures or
    there is none, FileExistsError if `output` exists and `overwrite` is False.
    """
    files = check_files(paths)
    located = open_pass(files, ports=ports, keylog=keylog, memory=memory)
    exchanges = _arrow(exchanges)
    messages = messages_of(exchanges, located.located_exchanges())
    if not len(messages):
        raise DissectorError("no exchange to cut: none of these rows is in the captures")
    nanoseconds = None if context is None else round(context * SECOND)
    choice = PacketChoice(messages, located.encrypted_connections, nanoseconds)
    again = open_pass(files, ports=ports, keylog=keylog, memory=memory)
    again.observe_packets(choice.observe)
    source = open_packets(files)
    keys = _secrets(source, keylog, choice.randoms) if secrets else []
    count = PacketCount()
    comments = [title] if title else []
    topics = {topic for names in exchanges["topics"].to_pylist() for topic in names or ()}
    comments += [comment(*each) for each in located.names.names.items() if each[1] in topics]
    with output_file(Path(output), overwrite=overwrite) as sink:
        sink.write(section_header(f"kafka-dissector {dissector.__version__}", comments))
        if keys:
            sink.write(secrets_block(b"\n".join(keys) + b"\n"))
        for block in packet_blocks(source, choice, count):
            sink.write(block)
    return CutResult(
        messages.exchanges, len(messages.clients), count.packets, count.trimmed, len(keys),
        len(messages.clients.keys() & set(located.encrypted_connections)),
        _unreadable(exchanges, dissector.open_capture(output, ports=ports, keylog=keylog)),
    )  # fmt: skip


def _arrow(exchanges: pd.DataFrame | pa.Table) -> pa.Table:
    """The rows with times in ns."""
    if not isinstance(exchanges, pa.Table):
        absent = set(EXCHANGES.schema.names) - set(exchanges.columns)
        if absent:
            raise DissectorError(f"rows of exchanges have no column {min(absent)}")
        exchanges = pa.Table.from_pandas(exchanges, EXCHANGES.schema, preserve_index=False)
    fields = [
        field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field
        for field in exchanges.schema
    ]
    return exchanges.cast(pa.schema(fields))


def _unreadable(exchanges: pa.Table, written: Capture) -> int:
    """Number of exchanges that are not in the cut."""
    identities: set[tuple[Any, ...]] = set()
    for _, batch in written.stream(["exchanges"]):
        identities.update(_identities(batch))
    return sum(each not in identities for each in _identities(exchanges))


def _identities(rows: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = (
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in (rows[name] for name in IDENTITY)
    )
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _secrets(
    source: FileSource, keylog: str | os.PathLike[str] | None, randoms: Collection[str]
) -> list[bytes]:
    """The lines of key logs that belong to these connections."""
    texts = [*source.secrets, *([Path(keylog).read_bytes()] if keylog else [])]
    lines = [line for text in texts for line in text.splitlines()]
    return list(dict.fromkeys(line for line in lines if _random(line) in randoms))


def _random(line: bytes) -> str:
    words = line.decode(errors="replace").split()
    return words[1].lower() if len(words) == 3 else ""

"""The stages of a pipeline, with its options: of the whole capture, or of a run of its packets."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from dissector.exchanges.topic_names import TopicNames
from dissector.frame_reader import FrameReader
from dissector.packets.block import PacketSource
from dissector.streams.connections.roundtrips import RoundTrips
from dissector.tables.builder import TableBuilder
from dissector.tables.connections import Connections

DEFAULT_PORTS = (9092,)
MEMORY_SHARE = 8
"""A block of packets gets an eighth of the memory, and so do pending requests and pending
responses. Streams get a quarter (see `streams.streaming`). The remaining memory is for rows.
"""


class Stages:
    """Creates stages. `request_wait`: see `Correlator`."""

    def __init__(
        self, *, ports: Collection[int] | None, keylog: str | os.PathLike[str] | None, memory: int,
        request_wait: int | None,
    ) -> None:  # fmt: skip
        self._ports, self._keylog = ports, keylog
        self._memory, self._request_wait = memory, request_wait
        self.comments: Sequence[str] = ()
        """Comments on capture files, from which the stages of runs learn."""

    def reader(self, source: PacketSource | None) -> FrameReader:
        """The stage from packets to frames."""
        ports = self._ports
        return FrameReader(
            source, ports=DEFAULT_PORTS if ports is None else ports, named=ports or (),
            keylog=self._keylog, memory=self._memory,
        )  # fmt: skip

    def builder(
        self, wanted: Collection[str], names: TopicNames, connections: Connections,
        captures: Sequence[str], **options: bool,
    ) -> TableBuilder:  # fmt: skip
        """The stage from frames to rows; `options`: see `TableBuilder`."""
        return TableBuilder(
            wanted, names, connections, captures, request_wait=self._request_wait,
            memory=self._memory // MEMORY_SHARE, **options,
        )  # fmt: skip

    def of_run(
        self, wanted: Collection[str], captures: Sequence[str], dictionaries: bool = False
    ) -> tuple[FrameReader, TableBuilder]:
        """The stages of a run, whose packets the caller reads.

        `dictionaries`: see `Pipeline.stream`.
        """
        reader = self.reader(None)
        streams = reader.streams
        streams.declared.learn(self.comments)
        if "connections" in wanted:
            streams.round_trips = RoundTrips()
        connections = Connections(streams.connections, streams.tls)
        return reader, self.builder(
            wanted, TopicNames(), connections, captures, dictionaries=dictionaries
        )

"""StreamSet: one set of streams, and what decides about them.

The bytes of packets are one set, decrypted bytes are another one, of the same connections.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dissector.packets.block import Int64
from dissector.streams.connections.state import States
from dissector.streams.connections.table import ConnectionTable, Endpoint, StreamTable
from dissector.streams.detection.detector import ProtocolDetector
from dissector.streams.search.bodies import BodyCheck, BodyEnd
from dissector.streams.search.header_evidence import HeaderScorer
from dissector.streams.search.request_evidence import Evidence


class StreamSet:
    """The streams of one kind of bytes of all connections. For arguments see `Streams`; `brokers`
    is shared by all sets."""

    def __init__(
        self, table: ConnectionTable, ports: Collection[int], newest: Mapping[int, int],
        evidence: Evidence, body_end: BodyEnd, brokers: set[Endpoint],
    ) -> None:  # fmt: skip
        self.table = table
        self.streams = StreamTable()
        self.states = States(table, self.streams)
        self.bodies = BodyCheck(table, body_end)
        self.scorer = HeaderScorer(table, self.streams, ports, newest, self.bodies.log, brokers)
        self.detector = ProtocolDetector(
            table, self.streams, self.states, self.scorer, self.bodies, evidence
        )

    def forget(self, rows: Int64) -> None:
        """Drop the state of these connections."""
        self.streams.forget(rows)
        self.detector.candidates.forget(rows)
        self.bodies.log.forget(rows)

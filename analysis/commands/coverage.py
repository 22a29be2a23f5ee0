"""How much of a capture could be read: what an empty result means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dissector.arrays import mutable

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

COVERAGE: Final = "connections"
"""The table that shows it. Exported tables may lack it."""


@mutable
class Coverage:
    """Numbers of connections."""

    kafka: int = 0
    """With Kafka."""
    read: int = 0
    """With Kafka, and packets in both directions."""
    payload: int = 0
    """With payload that may be Kafka."""

    def add(self, connections: pa.RecordBatch) -> None:
        """Count rows of the table."""
        import pyarrow.compute as pc

        def count(condition: pa.Array) -> int:
            return int(pc.sum(condition).as_py() or 0)

        is_kafka = pc.equal(connections["protocol"], "kafka")
        packets = (connections[f"{end}_packets"] for end in ("client", "broker"))
        size = pc.add(connections["client_bytes"], connections["broker_bytes"])
        is_unknown = pc.equal(connections["protocol"], "unknown")
        self.kafka += count(is_kafka)
        self.read += count(pc.and_(is_kafka, pc.greater(pc.min_element_wise(*packets), 0)))
        self.payload += count(pc.or_(pc.invert(is_unknown), pc.greater(size, 0)))

    @property
    def is_complete(self) -> bool:
        return self.read >= self.payload

    @property
    def is_without_kafka(self) -> bool:
        return self.kafka == 0 < self.payload


def coverage_of(tables: duckdb.DuckDBPyConnection) -> Coverage:
    """The coverage of a capture; zeros without its table."""
    coverage = Coverage()
    if (COVERAGE,) in tables.sql("show tables").fetchall():
        for batch in tables.sql(f"from {COVERAGE}").to_arrow_reader():
            coverage.add(batch)
    return coverage

"""What a screen needs of the source of its exchanges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from analysis.display.terminal import size_text
from dissector.errors import DissectorError
from dissector.exchanges.exchange import Exchange


@dataclass(slots=True)
class Reading:
    """The progress of a pass; `show` is a `Progress` of the pipeline."""

    read: int = 0
    total: int | None = None
    is_cancelled: bool = False

    def show(self, read: int, total: int | None) -> None:
        """Raises DissectorError after `cancel`."""
        self.read, self.total = read, total
        if self.is_cancelled:
            raise DissectorError("cancelled")

    def __str__(self) -> str:
        """The share of the input that was read; empty if it is unknown."""
        return f" {self.read / self.total:.0%} of {size_text(self.total)}" if self.total else ""

    def cancel(self) -> None:
        """End the passes that are running."""
        self.is_cancelled = True


class Source(Protocol):
    """A capture or a session."""

    reading: Reading
    start: int | None
    """Time of the first packet, ns; None: unknown."""

    def exchange(self, row: pa.RecordBatch) -> Exchange | None:
        """The exchange of a row; None without the bytes of its messages."""

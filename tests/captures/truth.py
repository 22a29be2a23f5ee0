"""Facts from the logs of clients, as typed rows (tools/record/truth.py), and the ledger.

The ledger is the tables of captures/README.md.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.captures.recorded import CAPTURES, unpacked
from tools.record.truth import Fact

ROOT = CAPTURES.parent
CLIENTS = ("aiokafka", "kafka-python", "librdkafka")


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One row of the ledger."""

    capture: str
    packets: int
    requests: int

    @property
    def name(self) -> str:
        """The capture's name, without suffixes."""
        return self.capture.partition(".")[0]

    @property
    def path(self) -> Path:
        """The capture itself."""
        return CAPTURES / self.capture


def ledger() -> dict[str, LedgerRow]:
    """All rows of all tables of captures, by name."""
    rows = {}
    for line in (CAPTURES / "README.md").read_text().splitlines():
        if line.startswith("| `") and ".pcap" in line.split("|")[1]:
            cells = [cell.strip(" `") for cell in line.split("|")[1:-1]]
            if "NAME" not in cells[0]:
                row = LedgerRow(cells[0], int(cells[-2]), int(cells[-1]))
                rows[row.name] = row
    return rows


def client_logs() -> list[str]:
    """Names of the captures whose facts are those of clients' logs."""
    return sorted({path.name.partition(".")[0] for path in CAPTURES.glob("*.log.zst")})


def facts(name: str) -> list[Fact]:
    """All facts of one capture, in order of the log's time."""
    text = unpacked(CAPTURES / f"{name}.truth.jsonl.zst").decode()
    return [Fact(**json.loads(line)) for line in text.splitlines()]


def by_connection(rows: Iterable[Fact]) -> list[list[Fact]]:
    """The requests of each connection, in order; each alone where the log knows no connection."""
    lanes: dict[object, list[Fact]] = defaultdict(list)
    for number, row in enumerate(rows):
        lanes[row.connection or number].append(row)
    return list(lanes.values())

"""What the tests of answers share: committed captures, made rows, what the brokers say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

import analysis
from analysis.answers.common import Tables
from analysis.frames import frame
from captures.record.kafka.truth import read
from dissector.tables import TABLES

CAPTURES = Path(__file__).parents[2] / "captures"


@cache
def capture(name: str, tables: tuple[str, ...] = ()) -> Tables:
    """The tables of a committed capture; those that need not be asked for, unless named."""
    path = next(path for path in CAPTURES.glob(f"{name}.pcap*"))
    return analysis.load(path, tables or None)


@cache
def told(name: str) -> pd.DataFrame:
    """What the broker's request log says of the requests of a capture, a row each."""
    rows = read(CAPTURES / f"{name}.truth.jsonl.zst")
    return pd.DataFrame([row for row in rows if row["source"] == "broker"])


def made(**tables: Sequence[Mapping[str, Any]]) -> dict[str, pd.DataFrame]:
    """Tables of made rows; a column that a row has not is null."""
    return {
        name: frame(
            pa.Table.from_pylist(
                [dict.fromkeys(table.schema.names) | dict(row) for row in tables.get(name, ())],
                table.schema,
            )
        )
        for name, table in TABLES.items()
    }

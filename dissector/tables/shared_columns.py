"""Columns that several tables have, and the order of their rows."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.sasl import SASL_TOKEN
from dissector.packets.block import Int64
from dissector.protocol import registry
from dissector.protocol.field_columns import FieldColumn
from dissector.tables.arrow import SelectedRows, map_codes

IN_ORDER = [("time", "ascending"), ("connection_id", "ascending")]
"""Sort keys of the rows of most tables."""


class Endpoints(Protocol):
    """Gives the addresses of connections."""

    def columns(self, connection: Int64) -> dict[str, pa.Array]:
        """client_ip, client_port, broker_ip and broker_port of each of n connections."""


def api_of(request: SelectedRows | pa.Table) -> pa.Array:
    """API name of each request; null if no API has its key, or the request is missing."""
    name = map_codes(request["api_key"], registry.api_name, pa.string())
    is_token = request["is_token"]
    return pc.if_else(is_token, SASL_TOKEN, name) if pc.any(is_token).as_py() else name


def error_names(code: pa.ChunkedArray) -> pa.ChunkedArray:
    """Kafka's name of each error code."""
    return map_codes(code, registry.error_name, pa.string())


def column_numbers(column: FieldColumn) -> Int64:
    """The values of a column of numbers."""
    assert column.values is not None
    return column.values.astype(np.int64)

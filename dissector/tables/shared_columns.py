"""Columns that several tables have, and the order of their rows."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.columns import as_array
from dissector.exchanges.sasl import SASL_TOKEN
from dissector.packets.block import Int64
from dissector.protocol import registry
from dissector.protocol.field_columns import FieldColumn
from dissector.tables.arrow import encode, without_dictionary

Column: TypeAlias = pa.Array | pa.ChunkedArray

IN_ORDER = [("time", "ascending"), ("connection_id", "ascending")]
"""Sort keys of the rows of most tables."""


class Endpoints(Protocol):
    """Gives the addresses of connections."""

    def columns(self, connection: Int64) -> dict[str, pa.Array]:
        """client_ip, client_port, broker_ip and broker_port of each of n connections."""


def api_of(api_key: Column, is_token: Column | None) -> pa.Array:
    """API name of each request; null if no API has its key, or the request is missing."""
    name = encode(api_key, registry.api_name)
    if is_token is None or not pc.any(is_token).as_py():
        return name
    return pc.if_else(as_array(is_token), SASL_TOKEN, without_dictionary(name))


def error_names(code: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """Kafka's name of each error code."""
    return encode(code, registry.error_name)


def column_numbers(column: FieldColumn) -> Int64:
    """The values of a column of numbers."""
    assert column.values is not None
    return column.values.astype(np.int64)

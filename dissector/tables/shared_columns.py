"""Columns that several tables share, and the order of their rows."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.sasl import SASL_TOKEN
from dissector.packets.block import Int64
from dissector.protocol import registry
from dissector.tables.arrow import Picked, by_code

IN_ORDER = [("time", "ascending"), ("connection_id", "ascending")]
"""How Arrow is told to sort rows."""


class Endpoints(Protocol):
    """Gives the ends of connections as text."""

    def columns(self, connection: Int64) -> dict[str, pa.Array]:
        """client_ip, client_port, broker_ip, broker_port of each of n connections."""


def api_of(request: Picked | pa.Table) -> pa.Array:
    """Name of each request's API; null where no API has that key, or the request is missing."""
    name = by_code(request["api_key"], registry.api_name, pa.string())
    is_token = request["is_token"]
    return pc.if_else(is_token, SASL_TOKEN, name) if pc.any(is_token).as_py() else name


def error_names(code: pa.ChunkedArray) -> pa.ChunkedArray:
    return by_code(code, registry.error_name, pa.string())

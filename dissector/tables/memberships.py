"""Rows of the table `memberships`: how members join, stay in and leave groups.

A classic group has four APIs, and generations. Groups of the newer types (KIP-848, KIP-932,
KIP-1071) have one heartbeat API, and each member has an epoch: 0 joins, -1 leaves.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.columns import masked
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.decoded_fields import DecodedFields
from dissector.protocol import registry
from dissector.tables.arrow import (
    map_codes,
    to_batch,
    unless_empty,
    unless_negative,
    without_dictionary,
)
from dissector.tables.errors import first_codes
from dissector.tables.pending import PendingRows, with_exchanges
from dissector.tables.schema import MEMBERSHIPS
from dissector.tables.shared_columns import IN_ORDER, error_names

GROUP_TYPES = MappingProxyType(
    {
        "JoinGroup": "classic",
        "SyncGroup": "classic",
        "Heartbeat": "classic",
        "LeaveGroup": "classic",
        "ConsumerGroupHeartbeat": "consumer",
        "ShareGroupHeartbeat": "share",
        "StreamsGroupHeartbeat": "streams",
    }
)
"""The type of group of each API."""

_KEYS = [key for key, name in registry.apis().items() if name in GROUP_TYPES]


class MembershipRows(PendingRows):
    """Rows of `memberships`."""

    def rows(self, block: CorrelatedBlock) -> pa.RecordBatch:
        """The exchanges with group coordinators that ended in this block."""
        requests = self.completed(block, _request_columns(block))
        exchange = with_exchanges(block, requests)
        row, response = exchange["row"], exchange["response"]
        header = block.requests.take(pa.array(row))
        responses = _response_columns(block).take(pa.array(response, mask=response < 0))
        group_type = map_codes(exchange["api"], GROUP_TYPES.get, pa.string())
        is_unset = pc.and_(pc.equal(group_type, "classic"), pc.less(responses["generation"], 0))
        member = without_dictionary(unless_empty(header["member_id"]))
        columns: dict[str, Any] = {
            **exchange,
            "group_id": without_dictionary(header["group_id"]),
            "group_type": group_type,
            "member_id": pc.coalesce(responses["member_id"], member),
            "generation": pc.if_else(is_unset, None, responses["generation"]),
            "protocol": pc.coalesce(responses["protocol"], requests["protocol"]),
            "leader": responses["leader"],
            "member_count": pc.coalesce(responses["member_count"], requests["member_count"]),
            "error_code": responses["error_code"],
            "error": error_names(responses["error_code"]),
        }
        return to_batch(MEMBERSHIPS, columns).sort_by(IN_ORDER)


def _request_columns(block: CorrelatedBlock) -> pa.Table:
    """The columns of the new requests of the block."""
    fields = block.request.fields
    is_member_api = np.isin(fields.messages.api_key, _KEYS) & fields.good
    table = pa.table(
        {
            "request": block.ids[block.new],
            "request_generation": fields.number_column("generation"),
            "group_instance_id": _texts(fields, "group_instance_id"),
            "protocol": _texts(fields, "group_protocol"),
            "member_count": _count(fields, "group_member"),
            "reason": _texts(fields, "group_reason"),
            "session_timeout_ms": fields.number_column("session_timeout_ms"),
            # A heartbeat leaves out what has not changed: -1 (KIP-848).
            "rebalance_timeout_ms": unless_negative(fields.number_column("rebalance_timeout_ms")),
        }
    )
    return table.filter(pa.array(is_member_api))


def _response_columns(block: CorrelatedBlock) -> pa.Table:
    """The columns of the responses; a row for each."""
    fields = block.response.fields
    return pa.table(
        {
            "generation": fields.number_column("generation"),
            "member_id": _texts(fields, "member_id"),
            "protocol": _texts(fields, "group_protocol"),
            "leader": _texts(fields, "group_leader"),
            "member_count": _count(fields, "group_member"),
            "error_code": masked(first_codes(fields)[0], ~fields.good),
        }
    )


def _texts(fields: DecodedFields, role: str) -> pa.Array:
    """The texts; null if empty, as in a response with an error."""
    return without_dictionary(unless_empty(fields.texts(role)))


def _count(fields: DecodedFields, role: str) -> pa.Array:
    count = fields.count(role)
    return pa.array(count, mask=count == 0)

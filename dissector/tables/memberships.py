"""Rows of the table `memberships`: how members of groups join, stay and leave.

A classic group has a protocol of four APIs, and generations. Groups of the newer kinds (KIP-848,
KIP-932, KIP-1071) have a heartbeat for everything, and each member an epoch: 0 joins, -1 leaves.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.correlator import Turn
from dissector.exchanges.decoded_fields import Facts
from dissector.protocol import registry
from dissector.tables.arrow import batch, by_code, ints, plain
from dissector.tables.pending import Waiting, asked_ids, context, first_errors
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
"""The type of group that each API belongs to."""

_KEYS = [key for key, name in registry.apis().items() if name in GROUP_TYPES]


class MembershipRows:
    """Rows of `memberships`."""

    def __init__(self) -> None:
        self._waiting = Waiting()

    def rows(self, turn: Turn) -> pa.RecordBatch:
        """The exchanges with coordinators that have ended with this turn."""
        asked = self._waiting.ended(turn, _asked(turn))
        around = context(turn, ints(asked, "request"))
        row, response = around["row"], around["response"]
        request = turn.requests.take(pa.array(row))
        told = _told(turn).take(pa.array(response, mask=response < 0))
        group_type = by_code(around["api"], GROUP_TYPES.get, pa.string())
        none = pc.and_(pc.equal(group_type, "classic"), pc.less(told["generation"], 0))
        named = plain(request["member_id"])
        member = pc.if_else(pc.equal(named, ""), None, named)
        columns: dict[str, Any] = {
            **{name: asked[name] for name in asked.column_names},
            **around,
            "group_id": plain(request["group_id"]),
            "group_type": group_type,
            "member_id": pc.coalesce(told["member_id"], member),
            "generation": pc.if_else(none, None, told["generation"]),
            "protocol": pc.coalesce(told["protocol"], asked["protocol"]),
            "leader": told["leader"],
            "member_count": pc.coalesce(told["member_count"], asked["member_count"]),
            "error_code": told["error_code"],
            "error": error_names(told["error_code"]),
        }
        found = batch(MEMBERSHIPS, columns)
        return found.take(pc.sort_indices(found, sort_keys=IN_ORDER))


def _asked(turn: Turn) -> pa.Table:
    """What the turn's own requests say."""
    facts = turn.request.facts
    mine = np.isin(facts.messages.api_key, _KEYS) & facts.good
    table = pa.table(
        {
            "request": asked_ids(turn),
            "request_generation": _numbers(facts, "generation"),
            "group_instance_id": _texts(facts, "group_instance_id"),
            "protocol": _texts(facts, "group_protocol"),
            "member_count": _count(facts, "group_member"),
            "reason": _texts(facts, "group_reason"),
            "session_timeout_ms": _numbers(facts, "session_timeout_ms"),
            "rebalance_timeout_ms": _numbers(facts, "rebalance_timeout_ms"),
        }
    )
    return table.filter(pa.array(mine))


def _told(turn: Turn) -> pa.Table:
    """What the responses say; a row for each."""
    facts = turn.response.facts
    return pa.table(
        {
            "generation": _numbers(facts, "generation"),
            "member_id": _texts(facts, "member_id"),
            "protocol": _texts(facts, "group_protocol"),
            "leader": _texts(facts, "group_leader"),
            "member_count": _count(facts, "group_member"),
            "error_code": first_errors(turn),
        }
    )


def _numbers(facts: Facts, role: str) -> pa.Array:
    value, known = facts.numbers(role)
    return pa.array(value, mask=~known)


def _texts(facts: Facts, role: str) -> pa.Array:
    """An empty text is none: so an answer with an error has it."""
    text = facts.texts(role).cast(pa.string())
    return pc.if_else(pc.equal(text, ""), None, text)


def _count(facts: Facts, role: str) -> pa.Array:
    count = facts.count(role)
    return pa.array(count, mask=count == 0)

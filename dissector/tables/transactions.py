"""Rows of the table `transactions`: what producers and brokers tell transaction coordinators.

A request may name several transactions (AddPartitionsToTxn between brokers, WriteTxnMarkers): each
is a row. What tells them apart in the response is the transactional id, or the producer's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.correlator import Turn
from dissector.exchanges.decoded_fields import Group
from dissector.packets.block import Int64
from dissector.protocol import registry
from dissector.protocol.field_columns import FieldColumn
from dissector.tables.arrow import batch, ints
from dissector.tables.pending import Waiting, answered_ids, asked_ids, context
from dissector.tables.schema import TRANSACTIONS
from dissector.tables.shared_columns import IN_ORDER, error_names

APIS = frozenset(
    {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn",
     "WriteTxnMarkers"}
)  # fmt: skip

_KEYS = [key for key, name in registry.apis().items() if name in APIS]

_NUMBERS = (
    "producer_id", "producer_epoch", "committed", "transaction_timeout_ms", "verify_only",
)  # fmt: skip
_TEXTS = ("transactional_id", "group_id")


class TransactionRows:
    """Rows of `transactions`."""

    def __init__(self) -> None:
        self._waiting = Waiting()

    def rows(self, turn: Turn) -> pa.RecordBatch:
        """The transactions in the exchanges that have ended with this turn."""
        asked = self._waiting.ended(turn, _asked(turn))
        around = context(turn, ints(asked, "request"))
        response = around["response"]
        told = _told(turn).take(pa.array(response, mask=response < 0))
        code = _errors(turn, asked, response)
        columns: dict[str, Any] = {
            **{name: asked[name] for name in asked.column_names},
            **around,
            "producer_id": _from_0(asked["producer_id"]),
            "producer_epoch": _from_0(asked["producer_epoch"]),
            "committed": asked["committed"].cast(pa.bool_()),
            "verify_only": asked["verify_only"].cast(pa.bool_()),
            "given_producer_id": told["given_producer_id"],
            "given_producer_epoch": told["given_producer_epoch"],
            "error_code": code,
            "error": error_names(code),
        }
        found = batch(TRANSACTIONS, columns)
        return found.take(pc.sort_indices(found, sort_keys=IN_ORDER))


def _asked(turn: Turn) -> pa.Table:
    """A row for each transaction that the turn's own requests name."""
    parts = [_NONE]
    ids = asked_ids(turn)
    for group, column in _anchors(turn):
        every = np.arange(len(column.row), dtype=np.int64)
        count = _partitions(group, column)
        columns: dict[str, Any] = {
            "request": ids[group.message(column)],
            "partition_count": pa.array(count, mask=count == 0),
        }
        columns |= {name: group.numbers_beside(column, name, every) for name in _NUMBERS}
        for name in _TEXTS:
            columns[name] = group.texts_beside(column, name, every).cast(pa.string())
        parts.append(pa.table(columns, schema=_NONE.schema))
    return pa.concat_tables(parts)


_NONE = pa.table(
    {
        **{name: pa.nulls(0, pa.int64()) for name in ("request", "partition_count", *_NUMBERS)},
        **{name: pa.nulls(0, pa.string()) for name in _TEXTS},
    }
)


def _anchors(turn: Turn) -> Iterator[tuple[Group, FieldColumn]]:
    """The field that each transaction has: of the oldest InitProducerId only its name."""
    facts = turn.request.facts
    for group in facts.groups:
        if len(group.messages) and facts.messages.api_key[group.messages[0]] in _KEYS:
            fields = [*group.walked.by_role("producer_id")]
            yield from (
                (group, each) for each in fields or group.walked.by_role("transactional_id")
            )


def _partitions(group: Group, column: FieldColumn) -> Int64:
    """How many partitions stand in the element of each value of `column`."""
    total = np.zeros(len(column.level.owner), np.int64)
    for other in group.walked.by_role("partition"):
        rows = other.rows_in(column.level)
        if rows is not None:
            total += np.bincount(rows, minlength=len(total))
    counts: Int64 = total[column.row]
    return counts


def _told(turn: Turn) -> pa.Table:
    """What each response gives the producer."""
    found = {}
    for role in ("given_producer_id", "given_producer_epoch"):
        value, known = turn.response.facts.numbers(role)
        found[role] = pa.array(value, mask=~known | (value < 0))
    return pa.table(found)


def _errors(turn: Turn, asked: pa.Table, response: Int64) -> pa.Array:
    """The first code that is not 0 of each transaction's part of the response; null: none came."""
    facts = turn.response.facts
    told: dict[tuple[int, str | None, int | None], int] = {}
    ids = answered_ids(turn)
    for group, column in facts.columns("error_code"):
        assert column.values is not None
        select = np.flatnonzero(column.values)
        keys = zip(
            ids[group.message(column)[select]].tolist(),
            group.texts_beside(column, "transactional_id", select).to_pylist(),
            group.numbers_beside(column, "producer_id", select).to_pylist(),
            strict=True,
        )
        for key, code in zip(keys, column.values[select].tolist(), strict=True):
            told.setdefault(key, code)
    code = np.zeros(len(asked), np.int64)
    request = ints(asked, "request")
    failed = np.flatnonzero(np.isin(request, [key[0] for key in told]))
    if len(failed):
        some = asked.take(pa.array(failed))
        names, producers = some["transactional_id"].to_pylist(), some["producer_id"].to_pylist()
        for index, number, name, producer in zip(
            failed.tolist(), request[failed].tolist(), names, producers, strict=True
        ):
            of_all = told.get((number, None, None), 0)
            code[index] = told.get((number, name, None), told.get((number, None, producer), of_all))
    good = np.append(facts.good, False)
    return pa.array(code, mask=~good[response])


def _from_0(number: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without what is below 0, which stands for none."""
    return pc.if_else(pc.less(number, 0), None, number)

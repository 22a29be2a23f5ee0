"""Rows of the table `transactions`: exchanges with transaction coordinators.

A request may contain several transactions (AddPartitionsToTxn between brokers, WriteTxnMarkers).
Each is a row. The transactional id or the producer id identifies it in the response.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from dissector.exchanges.columns import int_column
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.decoded_fields import LayoutGroup
from dissector.packets.block import Int64
from dissector.protocol import registry
from dissector.protocol.field_columns import FieldColumn
from dissector.tables.arrow import to_batch, unless_negative, without_dictionary
from dissector.tables.errors import error_codes
from dissector.tables.pending import PendingRows, with_exchanges
from dissector.tables.schema import TRANSACTIONS
from dissector.tables.shared_columns import IN_ORDER, column_numbers, error_names

APIS = frozenset(
    {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn",
     "WriteTxnMarkers"}
)  # fmt: skip

_KEYS = [key for key, name in registry.apis().items() if name in APIS]

_NUMBERS = (
    "producer_id", "producer_epoch", "committed", "transaction_timeout_ms", "verify_only",
)  # fmt: skip
_TEXTS = ("transactional_id", "group_id")


class TransactionRows(PendingRows):
    """Rows of `transactions`."""

    def rows(self, block: CorrelatedBlock) -> pa.RecordBatch:
        """The transactions in the exchanges that ended in this block."""
        requests = self.completed(block, _request_columns(block))
        exchange = with_exchanges(block, requests)
        response = exchange["response"]
        producers = _response_columns(block).take(pa.array(response, mask=response < 0))
        code = _errors(block, requests, response)
        columns: dict[str, Any] = {
            **exchange,
            "producer_id": unless_negative(requests["producer_id"]),
            "producer_epoch": unless_negative(requests["producer_epoch"]),
            "committed": requests["committed"].cast(pa.bool_()),
            "verify_only": requests["verify_only"].cast(pa.bool_()),
            "given_producer_id": producers["given_producer_id"],
            "given_producer_epoch": producers["given_producer_epoch"],
            "error_code": code,
            "error": error_names(code),
        }
        return to_batch(TRANSACTIONS, columns).sort_by(IN_ORDER)


def _request_columns(block: CorrelatedBlock) -> pa.Table:
    """A row for each transaction in the new requests of the block."""
    parts = [_NO_ROWS]
    ids = block.ids[block.new]
    for group, column in _anchors(block):
        count = _partitions(group, column)
        columns: dict[str, Any] = {
            "request": ids[group.message(column)],
            "partition_count": pa.array(count, mask=count == 0),
        }
        columns |= {name: group.sibling_numbers(column, name) for name in _NUMBERS}
        for name in _TEXTS:
            columns[name] = without_dictionary(group.sibling_texts(column, name))
        parts.append(pa.table(columns, schema=_NO_ROWS.schema))
    return pa.concat_tables(parts)


_NO_ROWS = pa.table(
    {
        **{name: pa.nulls(0, pa.int64()) for name in ("request", "partition_count", *_NUMBERS)},
        **{name: pa.nulls(0, pa.string()) for name in _TEXTS},
    }
)


def _anchors(block: CorrelatedBlock) -> Iterator[tuple[LayoutGroup, FieldColumn]]:
    """The first field of each transaction, which most truncated requests have: its transactional
    id, or the producer id in WriteTxnMarkers."""
    fields = block.request.fields
    for group in fields.groups:
        if len(group.messages) and fields.messages.api_key[group.messages[0]] in _KEYS:
            anchors = [*group.walked.by_role("transactional_id")]
            yield from ((group, each) for each in anchors or group.walked.by_role("producer_id"))


def _partitions(group: LayoutGroup, column: FieldColumn) -> Int64:
    """The number of partitions in the element of each value of `column`."""
    total = np.zeros(len(column.level.owner), np.int64)
    for partition in group.walked.by_role("partition"):
        rows = partition.rows_in(column.level)
        if rows is not None:
            total += np.bincount(rows, minlength=len(total))
    counts: Int64 = total[column.row]
    return counts


def _response_columns(block: CorrelatedBlock) -> pa.Table:
    """The producer id and epoch in each response."""
    roles = ("given_producer_id", "given_producer_epoch")
    fields = block.response.fields
    return pa.table({role: unless_negative(fields.number_column(role)) for role in roles})


def _errors(block: CorrelatedBlock, requests: pa.Table, response: Int64) -> pa.Array:
    """The first error code other than 0 of each transaction; null if there is no response."""
    fields = block.response.fields
    codes: dict[tuple[int, str | None, int | None], int] = {}
    ids = block.ids[block.answered]
    for group, column, select in error_codes(fields):
        keys = zip(
            ids[group.message(column)[select]].tolist(),
            group.sibling_texts(column, "transactional_id", select).to_pylist(),
            group.sibling_numbers(column, "producer_id", select).to_pylist(),
            strict=True,
        )
        for key, code in zip(keys, column_numbers(column)[select].tolist(), strict=True):
            codes.setdefault(key, code)
    code = np.zeros(len(requests), np.int64)
    request = int_column(requests, "request")
    failed = np.flatnonzero(np.isin(request, [key[0] for key in codes]))
    if len(failed):
        rows = requests.take(pa.array(failed))
        names, producers = rows["transactional_id"].to_pylist(), rows["producer_id"].to_pylist()
        for index, number, name, producer in zip(
            failed.tolist(), request[failed].tolist(), names, producers, strict=True
        ):
            default = codes.get((number, None, None), 0)
            by_producer = codes.get((number, None, producer), default)
            code[index] = codes.get((number, name, None), by_producer)
    good = np.append(fields.good, False)
    return pa.array(code, mask=~good[response])

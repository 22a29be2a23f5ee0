"""Rows of the tables `batches` and `decompressed_batches`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.byteview import ByteView
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.topic_names import TopicNames
from dissector.records.batch_headers import CODECS, CRC_END, TIMESTAMP_TYPES, Batches
from dissector.records.record_reader import decompressed_sizes
from dissector.tables.arrow import empty_batch, milliseconds, to_batch
from dissector.tables.pending import PendingRows
from dissector.tables.record_batches import (
    CarriedBatches,
    message_columns,
    offset_columns,
    produce_results,
)
from dissector.tables.schema import BATCHES
from dissector.tables.shared_columns import IN_ORDER

_NUMBERS = (
    "base_offset", "last_offset", "record_count", "leader_epoch", "producer_id", "producer_epoch",
    "base_sequence",
)  # fmt: skip
"""Columns of `Batches` that are null where they are negative."""


class BatchRows(PendingRows):
    """Rows of `batches`, or of `decompressed_batches`."""

    def __init__(self, names: TopicNames, *, decompress: bool = False) -> None:
        super().__init__()
        self._names = names
        self._decompress = decompress

    def rows(self, block: CorrelatedBlock, columns: Sequence[CarriedBatches]) -> pa.RecordBatch:
        """The rows that are complete with this block. `columns`: its record batches."""
        tables = [self._columns(block, each) for each in columns if len(each.batches)]
        if not tables and not self.pending:
            return empty_batch(BATCHES)
        done = self.completed(block, *tables).sort_by(IN_ORDER).combine_chunks()
        rows = {name: done[name] for name in done.column_names}
        offset, code = produce_results(block, done)
        decoded = block.ids[block.answered][block.response.fields.good]
        no_error = pc.if_else(pc.is_in(done["request"], pa.array(decoded)), 0, None)
        rows["error_code"] = pc.coalesce(done["error_code"], code, no_error)
        produced = done["produced"]
        first = pc.add(offset, done["position"])
        last = pc.subtract(pc.add(first, done["offsets"]), 1)
        rows["base_offset"] = pc.if_else(produced, first, done["base_offset"])
        rows["last_offset"] = pc.if_else(produced, last, done["last_offset"])
        return to_batch(BATCHES, rows)

    def _columns(self, block: CorrelatedBlock, carried: CarriedBatches) -> pa.Table:
        """The columns of `batches`, with `produced`, and `request`, the id of the request."""
        batches = carried.batches
        columns = message_columns(block, carried, self._names) | header_columns(batches)
        if self._decompress:
            columns |= size_column(carried.group.space, batches)
        is_produced = carried.messages is block.request
        count = len(batches)
        return pa.table(
            {
                **columns,
                "request": block.requests["id"].take(pa.array(carried.row[carried.message])),
                "produced": pa.array(np.full(count, is_produced)),
                **offset_columns(batches),
                "error_code": pa.nulls(count, pa.int64())
                if is_produced
                else carried.group.sibling_numbers(carried.column, "error_code", batches.field),
            }
        )


def header_columns(batches: Batches) -> dict[str, Any]:
    """Columns of `batches` from the batch headers."""
    base_timestamp = np.where(batches.has_delete_horizon, -1, batches.base_timestamp)
    numbers = {name: getattr(batches, name) for name in _NUMBERS}
    lacks_crc = (batches.magic == 2) & (batches.readable < CRC_END)
    lacks_flags = batches.codec < 0
    return {
        **{name: pa.array(column, mask=column < 0) for name, column in numbers.items()},
        "magic": batches.magic,
        "codec": _names_of(CODECS, batches.codec),
        "timestamp_type": _names_of(TIMESTAMP_TYPES, batches.timestamp_type),
        "base_timestamp": milliseconds(base_timestamp),
        "max_timestamp": milliseconds(batches.max_timestamp),
        "is_transactional": pa.array(batches.is_transactional, mask=lacks_flags),
        "is_control": pa.array(batches.is_control, mask=lacks_flags),
        "bytes": batches.size,
        "uncompressed_bytes": pa.array(batches.size, mask=(batches.codec != 0) | batches.truncated),
        "crc_ok": pa.array(batches.crc_ok == 1, mask=batches.crc_ok < 0),
        "truncated": batches.truncated,
        "crc": pa.array(batches.crc, mask=lacks_crc),
    }


def size_column(space: ByteView, batches: Batches) -> dict[str, Any]:
    """The column `uncompressed_bytes` of `decompressed_batches`."""
    sizes = decompressed_sizes(space, batches)
    return {"uncompressed_bytes": pa.array(sizes, mask=sizes < 0)}


def _names_of(words: Sequence[str], index: NDArray[np.integer]) -> pa.Array:
    """The word at each index; null if there is none."""
    is_missing = (index < 0) | (index >= len(words))
    return pa.array(words).take(pa.array(np.where(is_missing, 0, index), mask=is_missing))

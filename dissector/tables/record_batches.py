"""Record batches in messages: in Produce requests, and in the responses of Fetch and ShareFetch.

They are in the fields that a definition page gives the role `records`. Batch headers are read for
the table `batches`. Records are read only for the table `records`, since they must be decompressed.
The offsets of produced batches are in the response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.arrays import arrays
from dissector.exchanges.columns import as_array
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.decoded_fields import LayoutGroup
from dissector.exchanges.decoded_messages import DecodedMessages
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.protocol.field_columns import FieldColumn
from dissector.records.batch_headers import Batches, take
from dissector.records.batch_reader import read_batches
from dissector.tables.shared_columns import (
    column_numbers,
    request_columns,
    requests_of,
    topic_columns,
)

PRODUCE = 0


@arrays
class CarriedBatches:
    """The batches in one column of `records` fields."""

    messages: DecodedMessages
    row: Int64
    """Row of `CorrelatedBlock.requests` of each of the messages."""
    group: LayoutGroup
    column: FieldColumn
    batches: Batches
    """Sorted by connection."""

    @property
    def message(self) -> Int64:
        """Index of the message that contains each batch."""
        return self.group.message(self.column)[self.batches.field]


def carried_batches(block: CorrelatedBlock) -> list[CarriedBatches]:
    """All batches of a block: produced ones, then fetched ones, by API and version."""
    columns = []
    for messages, row in ((block.request, block.new), (block.response, block.answered)):
        for group, column in messages.fields.columns("records"):
            assert column.length is not None
            batches = read_batches(group.space, column.at, column.length)
            connection = messages.headers.connection[group.message(column)]
            batches = _sorted(batches, connection)
            columns.append(CarriedBatches(messages, row, group, column, batches))
    return columns


def _sorted(batches: Batches, connection: Int64) -> Batches:
    """The batches sorted by connection. `connection`: of each field."""
    connections = connection[batches.field]
    if (connections[1:] >= connections[:-1]).all():
        return batches
    by_connection = take(batches, np.argsort(connections, kind="stable"))
    return replace(by_connection, problems=batches.problems)


def batch_problems(columns: Sequence[CarriedBatches]) -> list[Problem]:
    """The bytes in `records` fields that were not decoded as batches."""
    return [
        with_location(problem, each, int(each.group.message(each.column)[field]))
        for each in columns
        for field, problem in each.batches.problems
    ]


def with_location(problem: Problem, carried: CarriedBatches, message: int) -> Problem:
    """The problem with time, packet and connection of a message."""
    headers = carried.messages.headers
    return replace(
        problem,
        time=int(headers.time[message]),
        packet=int(headers.packet[message]),
        connection_id=int(headers.connection[message]),
    )


def message_columns(
    block: CorrelatedBlock, carried: CarriedBatches, names: TopicNames
) -> dict[str, Any]:
    """Columns of `batches` from the message that contains each batch."""
    field, message = carried.batches.field, carried.message
    request = requests_of(block, carried.row[message])
    return {
        **request_columns(request),
        "time": carried.messages.headers.time[message],
        **topic_columns(carried.group, carried.column, names, field),
        "partition": carried.group.sibling_numbers(carried.column, "partition", field),
    }


def offset_columns(batches: Batches) -> dict[str, pa.Array]:
    """`position`: number of offsets of the batches before each one in its field; `offsets`: number
    of its own offsets. Null if a compressed message set does not contain the number."""
    is_newest = batches.magic == 2
    count = np.where(is_newest, batches.last_offset - batches.base_offset + 1, batches.record_count)
    is_unknown = count < 0
    count = np.where(is_unknown, 0, count)
    same_field = np.append(False, batches.field[1:] == batches.field[:-1])[: len(count)]
    first = np.maximum.accumulate(np.where(same_field, 0, np.arange(len(count))))

    def before(values: Int64) -> Int64:
        """The sum over the batches before each one in its field."""
        total = np.cumsum(values) - values
        sums: Int64 = total - total[first]
        return sums

    return {
        "position": pa.array(before(count), mask=before(is_unknown.astype(np.int64)) > 0),
        "offsets": pa.array(count, mask=is_unknown),
    }


def topic_keys(columns: Mapping[str, Any] | pa.Table) -> Any:
    """What identifies topics in messages of one version: the id, or else the name."""
    return pc.coalesce(columns["topic_id"], columns["topic"])


def produce_results(block: CorrelatedBlock, batches: pa.Table) -> tuple[pa.Array, pa.Array]:
    """The offset of the first record of each batch's partition, and the error code of the
    partition, from the response; null without.

    `batches`: columns `request`, `topic`, `topic_id` and `partition`.
    """
    parts = []
    for group, column in block.response.fields.columns("offset"):
        if block.response.fields.messages.api_key[group.messages[0]] != PRODUCE:
            continue
        offset = column_numbers(column)
        code = group.sibling_numbers(column, "error_code")
        parts.append(
            pa.table(
                {
                    "request": block.ids[block.answered][group.message(column)],
                    "key": topic_keys(topic_columns(group, column)),
                    "partition": group.sibling_numbers(column, "partition"),
                    "offset": pc.if_else(
                        pc.not_equal(code, 0), None, pa.array(offset, mask=offset < 0)
                    ),
                    "error_code": code,
                }
            )
        )
    if not parts:
        nothing = pa.nulls(len(batches), pa.int64())
        return nothing, nothing
    keys = ["request", "key", "partition"]
    values = [("offset", "min"), ("error_code", "max")]
    results = pa.concat_tables(parts).group_by(keys, use_threads=False).aggregate(values)
    wanted = pa.table(
        {
            "request": batches["request"],
            "key": topic_keys(batches),
            "partition": batches["partition"],
            "row": np.arange(len(batches)),
        }
    )
    joined = wanted.join(results, keys, use_threads=False).sort_by("row")
    return as_array(joined["offset_min"]), as_array(joined["error_code_max"])

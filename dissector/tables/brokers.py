"""Rows of the table `brokers`: ids and endpoints of brokers in responses."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.tables.arrow import (
    empty_batch,
    rows_where,
    to_batch,
    unless_empty,
    without_dictionary,
)
from dissector.tables.schema import BROKERS
from dissector.tables.shared_columns import (
    column_numbers,
    in_messages,
    message_place,
    request_columns,
    requests_of,
)


def brokers(block: CorrelatedBlock) -> pa.RecordBatch:
    """A row for each endpoint in the responses of this block that has a broker id and a host.

    A response without an endpoint has the id -1 and an empty host: FindCoordinator with an error.
    """
    parts = [
        {
            **message_place(block.response.headers, group, column),
            "broker_id": group.sibling_numbers(column, "broker_id"),
            "host": without_dictionary(group.sibling_texts(column, "host")),
            "port": column_numbers(column),
            "rack": without_dictionary(group.sibling_texts(column, "broker_rack")),
        }
        for group, column in block.response.fields.columns("port")
    ]
    if not parts:
        return empty_batch(BROKERS)
    table = in_messages(parts)
    table = rows_where(table, (pc.field("broker_id") >= 0) & (pc.field("host") != ""))
    request = requests_of(block, block.answered[table["message"].to_numpy()])
    columns = {
        **{name: table[name] for name in table.column_names},
        **request_columns(request),
        "rack": unless_empty(table["rack"]),
    }
    return to_batch(BROKERS, columns)

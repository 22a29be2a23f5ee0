"""Rows of the table `brokers`: ids and endpoints of brokers in responses."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.tables.arrow import empty_batch, to_batch, unless_empty
from dissector.tables.schema import BROKERS
from dissector.tables.shared_columns import api_of, column_numbers


def brokers(block: CorrelatedBlock) -> pa.RecordBatch:
    """A row for each endpoint in the responses of this block that has a broker id and a host.

    A response without an endpoint has the id -1 and an empty host: FindCoordinator with an error.
    """
    parts = []
    for group, column in block.response.fields.columns("port"):
        index = np.arange(len(column.row), dtype=np.int64)
        message = group.message(column)
        parts.append(
            pa.table(
                {
                    "time": block.response.headers.time[message],
                    "connection": block.response.headers.connection[message],
                    "message": message,
                    "at": column.at,
                    "broker_id": group.sibling_numbers(column, "broker_id", index),
                    "host": group.sibling_texts(column, "host", index).cast(pa.string()),
                    "port": column_numbers(column),
                    "rack": group.sibling_texts(column, "broker_rack", index).cast(pa.string()),
                }
            )
        )
    if not parts:
        return empty_batch(BROKERS)
    order = ("time", "connection", "message", "at")
    table = pa.concat_tables(parts).sort_by([(name, "ascending") for name in order])
    table = table.filter((pc.field("broker_id") >= 0) & (pc.field("host") != ""))
    request = block.requests.take(pa.array(block.answered[table["message"].to_numpy()]))
    columns = {
        "connection_id": request["connection"],
        "correlation_id": request["correlation_id"],
        "time": table["time"],
        "api": api_of(request["api_key"], request["is_token"]),
        "broker_id": table["broker_id"],
        "host": table["host"],
        "port": table["port"],
        "rack": unless_empty(table["rack"]),
    }
    return to_batch(BROKERS, columns)

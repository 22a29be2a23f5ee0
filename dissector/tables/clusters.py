"""Rows of the table `clusters`: cluster ids in messages, which show the cluster of a broker."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.columns import int_column
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.packets.block import Int64
from dissector.tables.arrow import empty_batch, to_batch, without_dictionary
from dissector.tables.schema import CLUSTERS
from dissector.tables.shared_columns import IN_ORDER, Endpoints, request_columns, requests_of

_ROLE: Final = "cluster_id"


def clusters(block: CorrelatedBlock, endpoints: Endpoints) -> pa.RecordBatch:
    """A row for each request and response of this block that contains a cluster id."""
    sent = block.request.fields.texts(_ROLE)
    received = block.response.fields.texts(_ROLE)
    if sent.null_count == len(sent) and received.null_count == len(received):
        return empty_batch(CLUSTERS)
    time = int_column(block.requests, "time")[block.new]
    parts = [
        _rows(block, endpoints, block.new, time, sent),
        _rows(block, endpoints, block.answered, block.response.headers.time, received),
    ]
    return to_batch(CLUSTERS, pa.concat_tables(parts).sort_by(IN_ORDER))


def _rows(
    block: CorrelatedBlock, endpoints: Endpoints, rows: Int64, time: Int64, ids: pa.Array
) -> pa.Table:
    """The messages with an id. `rows`, `time`: of the request, and of the message."""
    select = np.flatnonzero(pc.is_valid(ids).to_numpy(zero_copy_only=False))
    requests = requests_of(block, rows[select])
    return pa.table(
        {
            **request_columns(requests),
            **endpoints.columns(int_column(requests, "connection")),
            "time": time[select],
            "cluster_id": without_dictionary(ids).take(pa.array(select)),
        }
    )

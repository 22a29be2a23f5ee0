"""Rows that begin with a request and end with its response, wherever in the capture that is.

A table that tells of requests and responses together takes what a request says when it is read,
keeps that (a few columns, not the message), and gives it out when the exchange has come to its end.
Rows name their exchange by `request`: the running number that `describe` gives to each request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.correlator import Turn
from dissector.packets.block import Int64
from dissector.tables.arrow import ints, plain
from dissector.tables.errors import sorted_codes
from dissector.tables.shared_columns import api_of


class Waiting:
    """The rows of one table whose exchange has not ended; they have a column `request`."""

    def __init__(self) -> None:
        self._rows: pa.Table | None = None

    def ended(self, turn: Turn, rows: pa.Table) -> pa.Table:
        """Take the rows of this turn's requests; give all whose exchange has ended."""
        if self._rows is not None and len(self._rows):
            rows = pa.concat_tables([self._rows, rows])
        over = np.concatenate([turn.answered, turn.silent, turn.unanswered])
        has_ended = pc.is_in(rows["request"], pa.array(ints(turn.requests, "id")[over]))
        self._rows = rows.filter(pc.invert(has_ended))
        return rows.filter(has_ended).combine_chunks()


def asked_ids(turn: Turn) -> Int64:
    """Running number of each request of the turn's own; shape (requests,)."""
    return ints(turn.requests, "id")[turn.new :]


def answered_ids(turn: Turn) -> Int64:
    """Running number of the request of each response; shape (responses,)."""
    return ints(turn.requests, "id")[turn.answered]


def first_errors(turn: Turn) -> pa.Array:
    """First error code of each response that is not 0; null where it could not be read."""
    message, code = sorted_codes(turn.response.facts)
    first, index = np.unique(message, return_index=True)
    found = np.zeros(len(turn.answered), np.int64)
    found[first] = code[index]
    return pa.array(found, mask=~turn.response.facts.good)


def context(turn: Turn, request: Int64) -> Mapping[str, Any]:
    """What every such table tells of an exchange: columns by name, for the numbers of requests.

    Also `row`, the row of `Turn.requests`, and `response`, the index of the response, -1 for none.
    """
    row = np.searchsorted(ints(turn.requests, "id"), request)
    response = np.full(len(turn.requests), -1)
    response[turn.answered] = np.arange(len(turn.answered))
    answer = response[row]
    asked = turn.requests.take(pa.array(row))
    time = pa.array(turn.response.heads.time)
    return {
        "row": row,
        "response": answer,
        "connection_id": asked["connection"],
        "correlation_id": asked["correlation_id"],
        "time": asked["time"],
        "response_time": time.take(pa.array(answer, mask=answer < 0)),
        "api": api_of(asked),
        "api_version": asked["version"],
        "client_id": plain(asked["client_id"]),
    }

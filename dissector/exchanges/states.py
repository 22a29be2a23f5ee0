"""The state of connections in a `Correlator`, when it moves to another one."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector.arrays import mutable
from dissector.exchanges.columns import int_column, with_column
from dissector.exchanges.message_headers import MessageHeaders
from dissector.exchanges.sasl import Tokens
from dissector.packets.block import Int64
from dissector.streams.connections.rows import chosen, places
from dissector.streams.connections.table import Columns


class RequestIds(NamedTuple):
    """Running numbers of pending requests that were moved; shape (n,), ascending, n > 0."""

    before: Int64
    after: Int64

    def moved(self, ids: Int64) -> tuple[Int64, NDArray[np.bool_]]:
        """The new number of each request, and whether it was moved."""
        at = np.minimum(np.searchsorted(self.before, ids), len(self.before) - 1)
        return self.after[at], self.before[at] == ids


@mutable
class ExchangeStates:
    """The state of n connections, numbered from 0, in a `Correlator`."""

    columns: Columns
    """Columns of `Matcher`."""
    tokens: dict[int, Tokens]
    requests: pa.Table
    """Pending requests; `connection` is the number from 0."""
    responses: MessageHeaders
    frames: list[bytes]
    """Pending responses, and their bytes."""
    answers: Int64
    """Connection, ordinal and time of responses; shape (3, responses)."""

    def select(self, index: Int64) -> ExchangeStates:
        """A copy of the state of the connections at `index`."""
        chosen_requests, place = places(int_column(self.requests, "connection"), index)
        requests = self.requests.take(pa.array(chosen_requests))
        requests = with_column(requests, "connection", pa.array(place))
        waits, place = places(self.responses.connection, index)
        answers, owner = places(self.answers[0], index)
        return ExchangeStates(
            {name: column[index] for name, column in self.columns.items()},
            chosen(self.tokens, index),
            requests,
            replace(self.responses[waits], connection=place),
            [self.frames[each] for each in waits.tolist()],
            np.stack([owner, *self.answers[1:, answers]]),
        )

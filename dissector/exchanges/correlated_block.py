"""The result of the correlator for one block."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dissector.arrays import arrays
from dissector.exchanges.columns import int_column
from dissector.exchanges.decoded_messages import DecodedMessages
from dissector.exchanges.message_headers import EMPTY, MessageHeaders
from dissector.packets.block import Int64
from dissector.protocol.notation import Direction


@arrays
class CorrelatedBlock:
    """The requests, responses and completed exchanges of one block of frames.

    `requests` has a row for each pending request: those of earlier blocks, then those of this one.
    Index arrays refer to its rows.
    """

    requests: pa.Table
    """Columns: see `request_table`."""
    first_new: int
    """First row of the requests of this block."""
    request: DecodedMessages
    """Requests of this block."""
    response: DecodedMessages
    """Responses that were matched with a request."""
    answered: Int64
    """Row of the request of each response, ascending."""
    no_reply_expected: Int64
    """Requests that expected no response and got none."""
    unanswered: Int64
    """Requests whose response cannot arrive any more."""
    unmatched_responses: MessageHeaders
    """Responses whose request is not in the capture."""
    evicted: int = 0
    """Number of unanswered requests and unmatched responses that the memory limit evicted."""

    @property
    def ids(self) -> Int64:
        """Running number of the request in each row."""
        return int_column(self.requests, "id")

    @property
    def new(self) -> Int64:
        """The requests of this block."""
        return self.first_new + np.arange(len(self.request.headers))

    @property
    def completed(self) -> Int64:
        """Requests whose exchange ended in this block."""
        return np.concatenate([self.answered, self.no_reply_expected, self.unanswered])

    @property
    def is_empty(self) -> bool:
        """The block has no request, and no exchange ended in it."""
        ended = len(self.completed) + len(self.unmatched_responses)
        return ended == 0 and self.first_new == len(self.requests)

    @classmethod
    def empty(cls, schema: pa.Schema) -> CorrelatedBlock:
        """A block without messages. `schema`: that of the requests."""
        empty = np.zeros(0, np.int64)
        request, response = (DecodedMessages.empty(direction) for direction in Direction)
        return cls(schema.empty_table(), 0, request, response, empty, empty, empty, EMPTY)

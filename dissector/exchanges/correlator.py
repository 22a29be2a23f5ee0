"""The correlator joins requests and responses into exchanges.

A response names neither its API nor its version: both are those of the request with the same
correlation id. Therefore the headers of requests and responses are joined before the body of any
response is decoded. The fields of requests are decoded at once, all requests of a block together.
They are kept in columns until the response arrives, which may be in a later block, or never.

A request is unanswered if its connection has ended, or after `REQUEST_WAIT` if its response can
hardly come: brokers respond in order. A response is unmatched if its request does not arrive within
`RESPONSE_WAIT`. A request may arrive after its response if reassembly waited for a lost packet.
While older bytes of the client wait for reassembly, a response waits too: its request may be among
them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector.byteview import ByteView
from dissector.exchanges import decoded_fields, matching
from dissector.exchanges.client_ids import client_ids
from dissector.exchanges.columns import bool_column, int_column, with_column
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.decoded_fields import Messages
from dissector.exchanges.decoded_messages import DecodedMessages
from dissector.exchanges.message_headers import (
    EMPTY,
    HEADER_BYTES,
    MessageHeaders,
    gssapi_tokens,
    headers_of,
    read_request_headers,
    response_bodies,
    spaces_of,
)
from dissector.exchanges.pending_requests import PendingRequests, take_rows
from dissector.exchanges.repeated_ids import RESPONSE_WAIT, Requests, Responses
from dissector.exchanges.request_table import request_table
from dissector.exchanges.sasl import SaslTokens
from dissector.exchanges.states import ExchangeStates, RequestIds
from dissector.exchanges.topic_names import TopicNames
from dissector.exchanges.wanted_roles import wanted_roles
from dissector.packets.block import Int64
from dissector.protocol import registry
from dissector.protocol.notation import Direction
from dissector.streams.connections.table import FIRST_TIME, LAST_TIME
from dissector.streams.frames import FrameBlock

REQUEST_WAIT = 900 * 10**9
"""ns of capture time for which a request is kept at least. JoinGroup may wait for
max.poll.interval.ms: the default is 300 s, but users may choose days."""

AWAITED = 16
"""Number of latest requests of a connection that are kept without a time limit. More requests
without any response show that the capture lacks the responses."""

NO_REPLY_WAIT = 10 * 10**9
"""ns of capture time for which a request that expects no response (acks=0) is kept. Kafka sends no
response to it, but other brokers do: Tansu after up to 3.3 s. Brokers respond in order, so the time
starts when earlier requests of the connection have their responses."""

PENDING_BYTES = 64 << 20
"""Limit for the bytes of responses that wait for their requests, and for the bytes of requests that
wait for their responses. Beyond it, the oldest are evicted."""

_MATCHED = ("key", "connection", "run", "acknowledged", "end_time", "bytes", "ordinal", "end")
"""Columns of the request table that `repeated_ids.Requests` has."""


class Correlator:
    """Joins the frames of all connections into exchanges, block by block."""

    def __init__(
        self, names: TopicNames, *, tables: Collection[str] | None = None,
        keep_frames: bool = False, request_wait: int | None = None, memory: int = PENDING_BYTES,
    ) -> None:  # fmt: skip
        """`tables`: tables to fill (None: all). Fields that only other tables need are skipped.

        `keep_frames`: also keep the bytes of requests, in a column `frame` of their table.
        `request_wait`: ns after which a request is unanswered, except for `_group_barriers`. None:
        as long as its response may come.
        `memory`: limit for the bytes of pending requests, and for those of pending responses.
        """
        self._request_roles, self._response_roles = wanted_roles(tables)
        self._names = names
        self._keep_frames = keep_frames
        self._request_wait = request_wait
        self._memory = memory
        self._count = 0
        self._pending_responses = EMPTY
        self._pending_frames: list[bytes] = []
        self._answers = np.zeros((3, 0), np.int64)
        """Connection and ordinal of answered requests, and the time of the response."""
        self._matcher = matching.Matcher()
        self._tokens = SaslTokens()
        no_requests, empty = DecodedMessages.empty(Direction.REQUEST), np.zeros(0, np.int64)
        no_texts = decoded_fields.texts([], empty, empty, empty)
        self._pending = PendingRequests(self._table(no_requests, empty, no_texts).schema)

    @property
    def pending_connections(self) -> Int64:
        """Connections with a request or response that is not matched yet."""
        return np.union1d(self._pending_responses.connection, self._pending.connections)

    def forget(self, connections: Int64) -> None:
        """Drop the state of connections outside `pending_connections`."""
        self._matcher.forget(connections)
        self._tokens.forget(connections)
        self._drop_answers(connections)

    def _drop_answers(self, connections: Int64) -> None:
        if self._answers.size:
            is_kept = ~np.isin(self._answers[0], connections)
            self._answers = self._answers.compress(is_kept, axis=1)

    def take(self, connections: Int64) -> ExchangeStates:
        """A copy of the state of these connections; `put` adds it to another object."""
        self._matcher.grow(int(connections.max(initial=-1)) + 1)
        columns = {name: column for name, column, _ in self._matcher.columns}
        return ExchangeStates(
            columns, self._tokens.by_connection, self._pending.table, self._pending_responses,
            self._pending_frames, self._answers,
        ).select(connections)  # fmt: skip

    def put(self, rows: Int64, states: ExchangeStates) -> RequestIds:
        """Set the state of connections. `rows`: the row of each one.

        Returns the new running numbers of the pending requests.
        """
        self._matcher.put(rows, states.columns)
        self._tokens.put(rows, states.tokens)
        moved = replace(states.responses, connection=rows[states.responses.connection])
        self._pending_responses = self._pending_responses + moved
        self._pending_frames = [*self._pending_frames, *states.frames]
        answers = np.stack([rows[states.answers[0]], *states.answers[1:]])
        self._answers = np.hstack([self._answers, answers])
        return self._put_requests(rows, states.requests)

    def _put_requests(self, rows: Int64, requests: pa.Table) -> RequestIds:
        connection, key = rows[int_column(requests, "connection")], int_column(requests, "key")
        old, ids = int_column(requests, "id"), self._count + np.arange(len(requests))
        self._count += len(requests)
        moved = matching.moved_keys(key, connection)
        for name, values in (("connection", connection), ("key", moved), ("id", ids)):
            requests = with_column(requests, name, pa.array(values))
        self._pending.add(requests, np.full(len(requests), FIRST_TIME))  # the next block decides
        return RequestIds(old, ids)

    def discard(self, connections: Int64) -> Int64:
        """Drop the pending requests and responses of connections, whose state will be put.

        Returns the running numbers of these requests.
        """
        self._drop_answers(connections)
        waits = np.flatnonzero(~np.isin(self._pending_responses.connection, connections))
        self._pending_responses = self._pending_responses[waits]
        self._pending_frames = [self._pending_frames[each] for each in waits.tolist()]
        self._matcher.grow(int(connections.max(initial=-1)) + 1)
        is_dropped = np.zeros(self._matcher.count, np.bool_)
        is_dropped[connections] = True
        return int_column(self._pending.take(is_dropped, FIRST_TIME), "id")

    def drop_responses(self) -> None:
        """Drop all pending responses."""
        self._pending_responses, self._pending_frames = EMPTY, []

    @property
    def waiting_bytes(self) -> int:
        """Bytes of pending requests and responses."""
        return self._pending.nbytes + sum(map(len, self._pending_frames))

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for a response."""
        return len(self._pending)

    def feed(
        self, frames: FrameBlock, now: int, ended: NDArray[np.bool_], client_held_since: Int64, *,
        last: bool = False,
    ) -> CorrelatedBlock:  # fmt: skip
        """Correlate one block.

        `now`: latest time of the block, ns. `ended`: for each connection, whether it was closed and
        no packet of it came for `RESPONSE_WAIT`. `client_held_since`: see `FrameBatch`. `last`: no
        block follows, so that nothing stays pending.
        """
        self._matcher.grow(len(ended))
        if not (len(frames) or self.in_flight or self._pending_frames):
            return CorrelatedBlock.empty(self._pending.schema)
        spaces = spaces_of(frames)
        requests, table = self._requests(frames, spaces)
        responses = headers_of(frames, Direction.RESPONSE)
        responses = self._with_pending(responses, spaces)
        table = self._with_concerned(table, responses.connection, ended | last, now)
        first_new = len(table) - len(requests.headers)
        end_time = int_column(table, "end_time")
        is_late = responses.time < client_held_since[responses.connection]
        is_late = (is_late & (responses.time < now - RESPONSE_WAIT)) | last
        table, answered, response = self._match(table, responses, is_late, spaces)
        matched = responses[response]
        unmatched = np.delete(np.arange(len(responses)), response)
        lost, evicted_responses = self._keep_pending(
            responses, unmatched, spaces, is_late[unmatched]
        )
        left = np.delete(np.arange(len(table)), answered)
        is_silent = np.isin(int_column(table, "key")[left], self._tokens.without_response)
        self._add_answers(table, matched, answered, left[is_silent])
        no_reply = (int_column(table, "ordinal")[left] == 0) | is_silent
        ends = ended[int_column(table, "connection")[left]] | is_silent
        due = self._due(table, left, no_reply)
        ends |= self._is_over(table, left, due, now) | last
        evicted = self._evicted(table, np.flatnonzero(~ends), end_time[left])
        ends[evicted] = True
        table = self._with_in_flight(table, np.concatenate([answered, left[ends]]))
        self._pending.add(take_rows(table, left[~ends]), due[~ends])
        self._keep_answers(ended)
        return CorrelatedBlock(
            table,
            first_new,
            requests,
            self._responses(matched, table, answered, spaces),
            answered,
            left[ends & no_reply],
            left[ends & ~no_reply],
            lost,
            len(evicted) + evicted_responses,
        )

    def _match(
        self, table: pa.Table, responses: MessageHeaders, is_late: NDArray[np.bool_],
        spaces: Sequence[ByteView],
    ) -> tuple[pa.Table, Int64, Int64]:  # fmt: skip
        """The table with its column `repeats`, rows of requests, and the index of the response to
        each."""
        key, connection, run, acknowledged, time, size, ordinal, end = (
            int_column(table, name) for name in _MATCHED
        )
        repeats = bool_column(table, "repeats")
        requests = Requests(key, connection, run, acknowledged, time, size, ordinal, end, repeats)
        key = self._response_keys(responses, requests.key)
        candidates = Responses(
            key, responses.connection, responses.run, responses.acknowledged, responses.time,
            responses.bytes, responses.rank, responses.sequence, is_late,
        )  # fmt: skip

        def decodes(request: Int64, response: Int64) -> NDArray[np.bool_]:
            decoded = self._responses(responses[response], table, request, spaces)
            return decoded.decoded | ~decoded.known

        answered, response = self._matcher.match(requests, candidates, decodes)
        if repeats.any():
            table = with_column(table, "repeats", pa.array(repeats))
        return table, answered, response

    def _requests(
        self, frames: FrameBlock, spaces: Sequence[ByteView]
    ) -> tuple[DecodedMessages, pa.Table]:
        """Decode the requests of the block. Returns them, and their table."""
        headers = headers_of(frames, Direction.REQUEST)
        parts = read_request_headers(headers, spaces)
        tokens, token_keys = self._tokens.requests(
            headers.connection, parts.api_key, parts.version, parts.known,
            gssapi_tokens(headers, spaces, parts.api_key),
        )  # fmt: skip
        is_token = np.zeros(len(headers), np.bool_)
        is_token[tokens] = True
        messages = Messages(
            Direction.REQUEST, np.where(is_token, -1, parts.api_key), parts.version, spaces,
            headers.space, parts.body, headers.end,
        )  # fmt: skip
        fields = decoded_fields.decode_fields(messages, self._request_roles, headers.whole)
        requests = DecodedMessages(headers, fields, parts.known & ~is_token, is_token)
        key = matching.keys(headers.connection, headers.correlation_id)
        unnumbered = headers.end - headers.start < HEADER_BYTES
        key[unnumbered] = matching.no_keys(headers.connection[unnumbered])
        key[tokens] = token_keys
        return requests, self._table(requests, key, client_ids(headers, parts, spaces))

    def _with_concerned(
        self, table: pa.Table, responding: Int64, ended: NDArray[np.bool_], now: int
    ) -> pa.Table:
        """The pending requests that this block concerns, then those of `table`.

        `responding`: connections with responses. `ended`, `now`: see `feed`.
        """
        is_concerned = np.zeros(self._matcher.count, np.bool_)
        is_concerned[: len(ended)] = ended
        is_concerned[responding] = True
        is_concerned |= self._pending.nbytes + table.nbytes > self._memory  # to evict the oldest
        pending = self._pending.take(is_concerned, now)
        return pa.concat_tables([pending, table]).combine_chunks() if len(pending) else table

    def _table(self, requests: DecodedMessages, key: Int64, client: pa.Array) -> pa.Table:
        """The table of these requests, with their running numbers. `client`: their client ids."""
        headers = requests.headers
        repeats = self._matcher.repeats(headers.connection, headers.correlation_id)
        table = request_table(requests, key, client, self._ordinals(requests), repeats, self._names)
        table = table.append_column("id", pa.array(self._count + np.arange(len(headers))))
        sent_time = self._matcher.sent_times(headers.connection, headers.end_time)
        table = table.append_column("sent_time", pa.array(sent_time))
        self._count += len(headers)
        if self._keep_frames:
            table = table.append_column("frame", requests.frames_of(headers))
        return table

    def _ordinals(self, requests: DecodedMessages) -> Int64:
        """The number of each request among those of its connection that expect a response.

        0 for a request that expects no response.
        """
        acks, known = requests.fields.numbers("acks")
        expects = ~(known & (acks == 0))
        connection = requests.headers.connection
        count = np.cumsum(expects)
        begin = np.flatnonzero(np.diff(connection, prepend=-1))  # in stream order: by connection
        length = np.diff(begin, append=len(connection))
        before = count[begin] - expects[begin] - self._matcher.sent[connection[begin]]
        ordinal: Int64 = count - np.repeat(before, length)
        self._matcher.sent[connection[begin]] = ordinal[begin + length - 1]
        return np.where(expects, ordinal, 0)

    def _with_pending(self, responses: MessageHeaders, spaces: list[ByteView]) -> MessageHeaders:
        """The pending responses, in a byte space of their own, then those of the block."""
        if not self._pending_frames:
            return responses
        space, borders = decoded_fields.flat(self._pending_frames)
        spaces.append(space)
        index = np.full(len(self._pending_responses), len(spaces) - 1)
        return (
            replace(self._pending_responses, space=index, start=borders[:-1], end=borders[1:])
            + responses
        )

    def _response_keys(self, responses: MessageHeaders, request_keys: Int64) -> Int64:
        key = matching.keys(responses.connection, responses.correlation_id)
        key[responses.end - responses.start < 4] = matching.NO_KEY
        tokens, token_keys = self._tokens.responses(
            responses.connection, key, responses.bytes - 4, request_keys
        )
        key[tokens] = token_keys
        return key

    def _with_in_flight(self, table: pa.Table, ended: Int64) -> pa.Table:
        """The table with its column `in_flight`, for the requests that ended: all responses before
        theirs are known."""
        connection, ordinal, sent_time = (
            int_column(table, name)[ended] for name in ("connection", "ordinal", "sent_time")
        )
        before = self._matcher.last_answered
        counts = np.zeros(len(table), np.int32)
        counts[ended] = matching.in_flight(connection, ordinal, sent_time, self._answers, before)
        return with_column(table, "in_flight", pa.array(counts))

    def _add_answers(
        self, table: pa.Table, matched: MessageHeaders, answered: Int64, silent: Int64
    ) -> None:
        """Record which requests were answered, and when. `matched`: the responses to the requests
        `answered`. `silent`: last tokens, which have no response, and so are not in flight."""
        connection, ordinal, sent_time = (
            int_column(table, name) for name in ("connection", "ordinal", "sent_time")
        )
        np.maximum.at(self._matcher.last_response_time, matched.connection, matched.end_time)
        self._matcher.answers_all[matched.connection[ordinal[answered] == 0]] = True
        # Even if the clock of the capture was set back, a response follows its request.
        answer_time = np.maximum(matched.time, sent_time[answered])
        answers = np.stack([matched.connection, ordinal[answered], answer_time])
        tokens = np.stack([connection[silent], ordinal[silent], sent_time[silent]])
        self._answers = np.hstack([self._answers, answers, tokens])

    def _keep_answers(self, ended: NDArray[np.bool_]) -> None:
        """Keep the responses that came after a pending request, or after the latest request: the
        next one counts as sent no earlier. `ended`: see `feed`."""
        since = np.where(ended, LAST_TIME, self._matcher.last_request_time[: len(ended)])
        self._pending.lower_to_sent(since)
        connection, ordinal, time = self._answers
        is_over = time < since[connection]
        np.maximum.at(self._matcher.last_answered, connection[is_over], ordinal[is_over])
        self._answers = self._answers.compress(~is_over, axis=1)

    def _responses(
        self, headers: MessageHeaders, table: pa.Table, answered: Int64, spaces: Sequence[ByteView]
    ) -> DecodedMessages:
        """Decode the bodies of the matched responses."""
        api_key, version = (
            int_column(table, name)[answered].astype(np.int64) for name in ("api_key", "version")
        )
        is_token, known = (bool_column(table, name)[answered] for name in ("is_token", "known"))
        requested = version
        version, body = response_bodies(headers, spaces, api_key, requested)
        known |= version != requested  # in version 0, whatever the request
        messages = Messages(
            Direction.RESPONSE, np.where(is_token, -1, api_key), version, spaces, headers.space,
            body, headers.end,
        )  # fmt: skip
        fields = decoded_fields.decode_fields(messages, self._response_roles, headers.whole)
        return DecodedMessages(headers, fields, known, is_token)

    def _due(self, table: pa.Table, left: Int64, no_reply: NDArray[np.bool_]) -> Int64:
        """The time until which each of these requests, in order, waits at least; ns."""
        wait: int | Int64 = REQUEST_WAIT
        if self._request_wait is not None:
            is_barrier = np.isin(int_column(table, "api_key")[left], _group_barriers())
            wait = np.where(is_barrier, REQUEST_WAIT, self._request_wait)
        end_time = int_column(table, "end_time")[left]
        connection = int_column(table, "connection")[left]
        waits = np.flatnonzero(~no_reply)
        earliest = np.full(self._matcher.count, len(left))
        earliest[connection[waits[::-1]]] = waits[::-1]  # the last assignment stays
        is_next = no_reply & (np.arange(len(left)) < earliest[connection])
        is_next &= ~self._matcher.answers_all[connection]
        since = np.maximum(end_time, self._matcher.last_response_time[connection])
        due = end_time + wait
        return np.where(is_next, np.minimum(due, since + NO_REPLY_WAIT), due)

    def _is_over(self, table: pa.Table, left: Int64, due: Int64, now: int) -> NDArray[np.bool_]:
        """Which of these requests have waited long enough."""
        is_over: NDArray[np.bool_] = due < now
        if not is_over.any():
            return is_over
        ordinal, connection = (int_column(table, name)[left] for name in ("ordinal", "connection"))
        # Earlier requests of their connection are not available: the next block decides.
        is_over &= ~np.isin(connection, self._pending.connections)
        if self._request_wait is None:
            overtaken = self._matcher.last_answered.copy()
            np.maximum.at(overtaken, self._answers[0], self._answers[1])
            may_come = ordinal > overtaken[connection]
            may_come &= ordinal > self._matcher.sent[connection] - AWAITED
            is_over &= ~may_come
        return is_over

    def _evicted(self, table: pa.Table, pending: Int64, time: Int64) -> Int64:
        """The oldest of these requests, which exceed the memory limit."""
        if not len(pending) or table.nbytes <= self._memory:
            return pending[:0]
        most = self._memory * len(table) // table.nbytes
        order = np.argsort(time[pending], kind="stable")
        return pending[order[: max(len(pending) - most, 0)]]

    def _keep_pending(
        self, responses: MessageHeaders, unmatched: Int64, spaces: Sequence[ByteView],
        is_late: NDArray[np.bool_],
    ) -> tuple[MessageHeaders, int]:  # fmt: skip
        """Keep the unmatched responses that are not late, as far as memory allows; return the
        others, and the number of those that memory did not allow.

        `responses`: those that were kept before, then those of the block.
        """
        size = np.where(is_late, 0, (responses.end - responses.start)[unmatched])
        evicted = ~is_late & (np.cumsum(size[::-1])[::-1] > self._memory)
        is_over = is_late | evicted
        kept = unmatched[~is_over]
        keep, frames = responses[kept], self._pending_frames
        columns = (kept, keep.space, keep.start, keep.end - keep.start)
        self._pending_responses = keep
        self._pending_frames = [
            frames[index] if index < len(frames) else spaces[space].bytes(start, size)
            for index, space, start, size in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]
        return responses[unmatched[is_over]], int(evicted.sum())


@cache
def _group_barriers() -> list[int]:
    """Keys of JoinGroup and SyncGroup, whose responses wait for the other members of the group."""
    return [api.key for api in registry.all_apis() if api.is_group_barrier]

"""The conversation: requests and responses become exchanges.

A response does not say what it answers: its API and version are those of the request that has its
correlation id, so the two are joined by their headers before any body of a response is read. What a
request says is read at once, all bodies of a block together, and kept in columns until its response
comes: in a later block, or never.

Nothing waits for ever. A request is unanswered when its connection has ended, or after
`REQUEST_WAIT`; a response has no request in the capture when none has come within `RESPONSE_WAIT`
(a request can come later than its response where reassembly waited for a lost packet).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.exchanges import decoded_fields, matching
from dissector.exchanges.decoded_fields import Facts, Messages
from dissector.exchanges.message_headers import (
    EMPTY,
    Heads,
    heads,
    request_heads,
    response_bodies,
    spaces_of,
)
from dissector.exchanges.request_table import describe
from dissector.exchanges.sasl import SaslTokens
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.protocol import registry
from dissector.protocol.notation import Direction
from dissector.streams.byteview import ByteView
from dissector.streams.frames import FrameBlock

REQUEST_WAIT = 900 * 10**9
"""ns of capture time. A JoinGroup may wait for max.poll.interval.ms, whose default is 300 s."""

GROUP_BARRIERS = [api.key for api in registry.all_apis() if api.is_group_barrier]
"""Keys of JoinGroup and SyncGroup, whose responses wait for the other members of the group."""

RESPONSE_WAIT = 5 * 10**9
"""ns of capture time; longer than reassembly waits for a byte that was acknowledged."""

SILENT_WAIT = 10**9
"""ns of capture time that a request which wants no response (acks=0) is kept, should one come all
the same: Kafka sends none, other brokers do. Brokers respond in order, so that the time begins when
earlier requests of the connection have their responses."""

CUT = "…"
"""Behind a client id of which the capture has the beginning only."""

WAITING_BYTES = 64 << 20
"""Bytes of responses that may wait for their requests, and of requests that may wait for responses;
beyond, the oldest are given out."""

REQUEST_ROLES = frozenset(
    {"acks", "max_wait_ms", "group_id", "member_id", "transactional_id", "topic", "topic_id",
     "partition", "records", "software_name", "software_version", "sasl_mechanism"}
)  # fmt: skip
RESPONSE_ROLES = frozenset(
    {"throttle_time_ms", "error_code", "member_id", "topic", "topic_id", "partition", "records",
     "host", "port"}
)  # fmt: skip
"""What exchanges and connections tell, and what the reading itself needs."""

ROLES_OF = {
    **dict.fromkeys(("batches", "decompressed_batches", "records"), frozenset({"offset"})),
    "errors": frozenset({"error_message"}),
    "topics": frozenset({"leader", "leader_epoch", "replicas", "isr"}),
    "partitions": frozenset(
        {"offsets_of", "offset", "offset_epoch", "offset_timestamp", "replica_id", "group_id",
         "high_watermark", "last_stable_offset", "log_start_offset", "told_leader",
         "told_leader_epoch", "done_count", "told_lag"}
    ),
    "memberships": frozenset(
        {"generation", "group_instance_id", "group_protocol", "group_leader", "group_member",
         "group_reason", "session_timeout_ms", "rebalance_timeout_ms"}
    ),
    "transactions": frozenset(
        {"producer_id", "producer_epoch", "given_producer_id", "given_producer_epoch", "committed",
         "transaction_timeout_ms", "verify_only", "transactional_id"}
    ),
}  # fmt: skip
"""Roles that only one table makes something of."""


@dataclass(frozen=True, slots=True)
class Side:
    """Messages of one direction, in all detail; arrays of shape (n,)."""

    heads: Heads
    messages: Messages
    facts: Facts
    known: NDArray[np.bool_]
    """The header is there, and the definitions know the API and version."""
    is_token: NDArray[np.bool_]
    """A SASL token, which has no header."""

    @property
    def decoded(self) -> NDArray[np.bool_]:
        """Nothing contradicts the definitions; of a message that is cut, as far as it is there."""
        return self.is_token | (self.known & (self.facts.good | ~self.heads.whole))

    @property
    def surplus(self) -> Int64:
        """Bytes behind the last field of each message; 0 where the capture has none of them."""
        heads, surplus = self.heads, self.facts.surplus
        missing = heads.bytes - 4 - (heads.end - heads.start)
        return np.where(surplus > 0, surplus + missing, 0)

    def frame(self, index: int) -> bytes:
        """The bytes of a message, header included, as far as they are there."""
        return self.frame_of(self.heads, index)

    def frame_of(self, heads: Heads, index: int) -> bytes:
        """The same for any heads of the turn."""
        start, end = int(heads.start[index]), int(heads.end[index])
        return self.messages.spaces[int(heads.space[index])].bytes(start, end - start)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a block of frames brought.

    `requests` has a row for each request at hand: those that still waited, then the block's own.
    The index arrays count its rows.
    """

    requests: pa.Table
    """Columns: see `describe`."""
    new: int
    """First row of the block's own requests."""
    request: Side
    """The block's own requests."""
    response: Side
    """Responses that found their request."""
    answered: Int64
    """Row of the request of each response, ascending."""
    silent: Int64
    """Requests that want no response, and got none."""
    unanswered: Int64
    """Requests that will not be answered any more."""
    orphans: Heads
    """Responses whose request is not in the capture."""
    crowded: int = 0
    """How many of the unanswered and the orphans were given out because memory is needed."""

    @property
    def is_empty(self) -> bool:
        """No request came, and no exchange ended."""
        ended = len(self.answered) + len(self.silent) + len(self.unanswered) + len(self.orphans)
        return ended == 0 and self.new == len(self.requests)

    def orphan_frame(self, index: int) -> bytes:
        """The bytes of an orphan."""
        return self.response.frame_of(self.orphans, index)


@dataclass(slots=True)
class _PerConnection:
    """What is remembered of each connection; int64 arrays that grow with the connections."""

    sent: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Requests that want a response."""
    answered: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Ordinal of the latest one that was answered; the first is 1."""
    heard: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """ns; when the latest response that found its request had come."""

    def forget(self, connections: Int64) -> None:
        self.sent[connections] = self.answered[connections] = self.heard[connections] = 0

    def grow(self, count: int) -> None:
        missing = np.zeros(max(count - len(self.sent), 0), np.int64)
        self.sent = np.concatenate([self.sent, missing])
        self.answered = np.concatenate([self.answered, missing])
        self.heard = np.concatenate([self.heard, missing])


class Conversation:
    """Joins the frames of all connections into exchanges, block by block."""

    def __init__(
        self, names: TopicNames, *, tables: Collection[str] | None = None,
        keep_frames: bool = False, request_wait: int = REQUEST_WAIT, memory: int = WAITING_BYTES,
    ) -> None:  # fmt: skip
        """`tables`: those to be filled (None: all); what only others need is not looked at.

        `keep_frames`: keep the bytes of requests too, in a column `frame` of their table.
        `request_wait`: ns after which a request is unanswered, but for those of `GROUP_BARRIERS`.
        `memory`: bytes of requests, and as many of responses, that may wait.
        """
        more = (roles for table, roles in ROLES_OF.items() if tables is None or table in tables)
        wanted = frozenset[str]().union(*more)
        self._request_roles, self._response_roles = REQUEST_ROLES | wanted, RESPONSE_ROLES | wanted
        self._names = names
        self._keep_frames = keep_frames
        self._request_wait = request_wait
        self._memory = memory
        self._count = 0
        self._pending: pa.Table | None = None
        self._waiting = EMPTY
        self._waiting_frames: list[bytes] = []
        self._crowded_out = 0  # responses
        self._connections = _PerConnection()
        self._matcher = matching.Matcher()
        self._tokens = SaslTokens()

    @property
    def busy(self) -> Int64:
        """Connections of which a message waits for another."""
        pending = [] if self._pending is None else [_ints(self._pending, "connection")]
        return np.unique(np.concatenate([self._waiting.connection, *pending]))

    def forget(self, connections: Int64) -> None:
        """Let go of these connections, none of which is `busy`."""
        self._connections.forget(connections)
        self._matcher.forget(connections)
        self._tokens.forget(connections)

    @property
    def in_flight(self) -> int:
        """Requests that wait for a response."""
        return 0 if self._pending is None else len(self._pending)

    def feed(
        self, frames: FrameBlock, now: int, ended: NDArray[np.bool_], *, last: bool = False
    ) -> Turn:
        """Read one block.

        `now`: latest time of the block, ns. `ended`: for each connection, whether a FIN or RST was
        seen. `last`: nothing follows, so nothing waits any longer.
        """
        self._connections.grow(len(ended))
        self._matcher.grow(len(ended))
        spaces = spaces_of(frames)
        request = self._requests(frames, spaces)
        responses = heads(frames, spaces, np.flatnonzero(~frames.is_request))
        responses = self._with_waiting(responses, spaces)
        table, new = self._table, self._new
        end_time = _ints(table, "end_time")
        is_late = (responses.time < now - RESPONSE_WAIT) | last
        answered, other = self._match(table, responses, is_late)
        found = responses[other]
        np.maximum.at(self._connections.heard, found.connection, found.end_time)
        table = self._with_in_flight(table, new, answered, found)
        unmatched = np.ones(len(responses), np.bool_)
        unmatched[other] = False
        orphans = self._keep_waiting(responses[np.flatnonzero(unmatched)], spaces, now, last)
        left = np.setdiff1d(np.arange(len(table)), answered, assume_unique=True)
        silent = _ints(table, "ordinal")[left] == 0
        gone = ended[_ints(table, "connection")[left]] & (end_time[left] < now - RESPONSE_WAIT)
        gone |= self._are_settled(table, left, silent, now)
        patient = np.isin(_ints(table, "api_key")[left], GROUP_BARRIERS)
        wait = np.where(patient, REQUEST_WAIT, self._request_wait)
        gone |= (end_time[left] < now - wait) | last
        crowded = self._crowded(table, np.flatnonzero(~gone), end_time[left])
        gone[crowded] = True
        self._pending = _few(table, left[~gone])
        return Turn(
            table,
            new,
            request,
            self._responses(found, table, answered, spaces),
            answered,
            left[gone & silent],
            left[gone & ~silent],
            orphans,
            len(crowded) + self._crowded_out,
        )

    def _match(
        self, table: pa.Table, responses: Heads, is_late: NDArray[np.bool_]
    ) -> tuple[Int64, Int64]:
        """Rows of requests, and indices of the responses that answer them."""
        asked = matching.Requests(
            key=_ints(table, "key"), connection=_ints(table, "connection"), run=_ints(table, "run"),
            acknowledged=_ints(table, "acknowledged"), time=_ints(table, "end_time"),
            ordinal=_ints(table, "ordinal"), end=_ints(table, "end"),
            repeats=table["repeats"].to_numpy(),
        )  # fmt: skip
        key = self._response_keys(responses, asked.key)
        came = matching.Responses(
            key, responses.connection, responses.run, responses.acknowledged, responses.time,
            responses.rank, responses.sequence, is_late,
        )  # fmt: skip
        return self._matcher.match(asked, came)

    def _requests(self, frames: FrameBlock, spaces: Sequence[ByteView]) -> Side:
        """Read the block's requests; put them into a table behind those that still wait."""
        head = heads(frames, spaces, np.flatnonzero(frames.is_request))
        header = request_heads(head, spaces)
        tokens, token_keys = self._tokens.requests(
            head.connection, header.api_key, header.version, header.known
        )
        is_token = np.zeros(len(head), np.bool_)
        is_token[tokens] = True
        messages = Messages(
            Direction.REQUEST, np.where(is_token, -1, header.api_key), header.version, spaces,
            head.space, header.body, head.end,
        )  # fmt: skip
        found = decoded_fields.gather(messages, self._request_roles, head.whole)
        side = Side(head, messages, found, header.known & ~is_token, is_token)
        key = matching.keys(head.connection, head.correlation_id)
        key[tokens] = token_keys
        client = decoded_fields.texts(spaces, head.space, header.client_id, header.client_id_length)
        if header.client_id_is_cut.any():
            whole = client.cast(pa.string())
            told = pc.binary_join_element_wise(whole, CUT, "")
            client = pc.if_else(header.client_id_is_cut, told, whole).dictionary_encode()
        repeats = self._matcher.repeats(head.connection, head.correlation_id)
        table = describe(side, key, client, self._ordinals(side), repeats, self._names)
        table = table.append_column("id", pa.array(self._count + np.arange(len(head))))
        self._count += len(head)
        if self._keep_frames:
            frame = [side.frame(index) for index in range(len(head))]
            table = table.append_column("frame", pa.array(frame, pa.large_binary()))
        pending = self._pending if self._pending is not None else table.slice(0, 0)
        self._new = len(pending)
        self._table = pa.concat_tables([pending, table]).combine_chunks()
        return side

    def _ordinals(self, side: Side) -> Int64:
        """Number each request among those of its connection that want a response; else 0."""
        acks, known = side.facts.numbers("acks")
        wants = ~(known & (acks == 0))
        connection = side.heads.connection
        count = np.cumsum(wants)
        begin = np.flatnonzero(np.diff(connection, prepend=-1))  # in stream order: by connection
        length = np.diff(begin, append=len(connection))
        before = count[begin] - wants[begin] - self._connections.sent[connection[begin]]
        ordinal: Int64 = count - np.repeat(before, length)
        self._connections.sent[connection[begin]] = ordinal[begin + length - 1]
        return np.where(wants, ordinal, 0)

    def _with_waiting(self, responses: Heads, spaces: list[ByteView]) -> Heads:
        """The responses that still waited, in a space of their own, then the block's."""
        if not self._waiting_frames:
            return responses
        space, borders = decoded_fields.flat(self._waiting_frames)
        spaces.append(space)
        index = np.full(len(self._waiting), len(spaces) - 1)
        return replace(self._waiting, space=index, start=borders[:-1], end=borders[1:]) + responses

    def _response_keys(self, responses: Heads, request_keys: Int64) -> Int64:
        key = matching.keys(responses.connection, responses.correlation_id)
        key[responses.end - responses.start < 4] = matching.NO_KEY
        tokens, token_keys = self._tokens.responses(
            responses.connection, key, responses.bytes - 4, request_keys
        )
        key[tokens] = token_keys
        return key

    def _with_in_flight(self, table: pa.Table, new: int, answered: Int64, found: Heads) -> pa.Table:
        """The table with `in_flight` of its rows, as far as responses are known."""
        connection, ordinal = _ints(table, "connection"), _ints(table, "ordinal")
        end_time, answered_before = _ints(table, "end_time"), self._connections.answered

        def flying(rows: slice, before: Int64) -> Int64:
            # At their ends: a request that began in an earlier block may have begun before
            # responses of which no more is known than that they came.
            return matching.in_flight(
                connection[rows], ordinal[rows], end_time[rows],
                found.connection, ordinal[answered], found.time, before,
            )  # fmt: skip

        column = _ints(table, "in_flight").copy()
        column[new:] = flying(slice(new, None), answered_before)
        # Responses may be recognised later than requests that came after them.
        recognised = flying(slice(new), np.zeros_like(answered_before))
        column[:new] = np.minimum(column[:new], recognised)
        np.maximum.at(self._connections.answered, found.connection, ordinal[answered])
        where = table.schema.get_field_index("in_flight")
        return table.set_column(where, "in_flight", pa.array(column))

    def _responses(
        self, head: Heads, table: pa.Table, answered: Int64, spaces: Sequence[ByteView]
    ) -> Side:
        """Read the bodies of the responses that found their request."""
        api_key, version = _ints(table, "api_key")[answered], _ints(table, "version")[answered]
        is_token = table["is_token"].to_numpy()[answered]
        version, body = response_bodies(head, spaces, api_key, version)
        messages = Messages(
            Direction.RESPONSE, np.where(is_token, -1, api_key), version, spaces, head.space, body,
            head.end,
        )  # fmt: skip
        known = table["known"].to_numpy()[answered]
        return Side(
            head,
            messages,
            decoded_fields.gather(messages, self._response_roles, head.whole),
            known,
            is_token,
        )

    def _are_settled(
        self, table: pa.Table, left: Int64, silent: NDArray[np.bool_], now: int
    ) -> NDArray[np.bool_]:
        """Which of these requests, in order, want no response and will not get one."""
        connection = _ints(table, "connection")[left]
        waits = np.flatnonzero(~silent)
        earliest = np.full(len(self._connections.heard), len(left))
        earliest[connection[waits[::-1]]] = waits[::-1]  # the last assignment stays
        is_next = np.arange(len(left)) < earliest[connection]
        since = np.maximum(_ints(table, "end_time")[left], self._connections.heard[connection])
        return silent & is_next & (since < now - SILENT_WAIT)

    def _crowded(self, table: pa.Table, waiting: Int64, time: Int64) -> Int64:
        """Which of these requests, the oldest, may not wait because memory is needed."""
        if not len(waiting) or table.nbytes <= self._memory:
            return waiting[:0]
        most = self._memory * len(table) // table.nbytes
        order = np.argsort(time[waiting], kind="stable")
        return waiting[order[: max(len(waiting) - most, 0)]]

    def _keep_waiting(
        self, unmatched: Heads, spaces: Sequence[ByteView], now: int, last: bool
    ) -> Heads:
        """Keep what may still find its request; return what will not."""
        old = (unmatched.time < now - RESPONSE_WAIT) | last
        size = np.where(old, 0, unmatched.end - unmatched.start)
        crowded = ~old & (np.cumsum(size[::-1])[::-1] > self._memory)
        self._crowded_out = int(crowded.sum())
        old |= crowded
        keep = unmatched[np.flatnonzero(~old)]
        self._waiting = keep
        self._waiting_frames = [
            spaces[space].bytes(start, end - start)
            for space, start, end in zip(
                keep.space.tolist(), keep.start.tolist(), keep.end.tolist(), strict=True
            )
        ]
        return unmatched[np.flatnonzero(old)]


def _few(table: pa.Table, row: Int64) -> pa.Table:
    """These rows, whose dictionaries have no other words than they."""
    table = table.take(pa.array(row)).combine_chunks()
    for index, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            few = column.cast(pa.string()).dictionary_encode()
            table = table.set_column(index, table.field(index).name, few)
    return table


def _ints(table: pa.Table, name: str) -> Int64:
    column: Int64 = table[name].to_numpy()
    return column

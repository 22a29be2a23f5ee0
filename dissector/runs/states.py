"""The state of connections at the border of two runs.

The reader of a run does not know the run before it. It learns the state of connections from the
bytes before the run (`plan.WARM_UP`). A connection continues into the run if this state is the
state that the run before left: then all rows from the border on are the same. Both states count
from different beginnings: positions in the stream, numbers of frames and of requests. These are
compared, and joined, relative to the border.

Only connections in the normal state are compared: Kafka in both directions, at the border of a
message or inside one, no missing byte (`is_normal`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector.arrays import mutable
from dissector.exchanges.columns import bool_column, int_column, with_column
from dissector.exchanges.states import ExchangeStates
from dissector.frame_reader import FrameReader
from dissector.packets.block import Int64
from dissector.streams.connections.table import (
    FIRST_TIME,
    FRAMED,
    KAFKA,
    LAST_TIME,
    NEVER,
    OPEN,
    Bools,
    ConnectionTable,
    StreamTable,
    streams_at,
)
from dissector.streams.segments import Segments
from dissector.streams.stream_states import StreamStates
from dissector.tables.builder import TableBuilder
from dissector.tables.connections import ClientInfo, selected_info

_SAME_CONNECTION: Final = ("client", "protocol", "closed", "replaced", "last_time")
_SAME_STREAM: Final = (
    "state", "has_origin", "readable_time", "payload_time", "payload_end", "close_deadline",
    "has_correlation", "correlation",
)  # fmt: skip
_SAME_POSITION: Final = ("highest", "boundary", "frame_end", "framed_until", "fin")
_POSITIONS: Final = (*_SAME_POSITION, "next_position", "check_from", "search_from", "acknowledged")
"""Columns with positions in a stream."""
_NO_POSITION: Final = {
    "frame_end": NEVER, "framed_until": FIRST_TIME, "fin": LAST_TIME, "highest": FIRST_TIME,
    "acknowledged": FIRST_TIME,
}  # fmt: skip
COUNTS: Final = (
    "packets", "bytes", "retransmitted", "out_of_order", "lost", "cut", "requests", "responses",
)  # fmt: skip
"""Columns of the connection table that count."""
_EARLIEST: Final = ("number", "capture", "packet", "syn_time", "handshake", "isn", "first_time")
"""Columns of the connection that its first packets determine."""
_EARLIEST_STREAM: Final = (
    "anchor", "origin", "origin_time", "has_syn_ack", "syn_ack", "was_undecided",
)  # fmt: skip
_REQUEST: Final = (
    "packet", "capture", "correlation_id", "time", "end_time", "sent_time", "bytes", "api_key",
    "version", "acknowledged", "end",
)  # fmt: skip
"""Columns that identify a pending request, and its state."""


@mutable
class States:
    """The state of n connections, numbered from 0."""

    streams: StreamStates
    exchanges: ExchangeStates
    clients: ClientInfo

    def select(self, index: Int64) -> States:
        """The state of the connections at `index`, which ascends."""
        if len(index) == len(self.table["client"]):
            return self
        return States(
            self.streams.select(index),
            self.exchanges.select(index),
            selected_info(self.clients, index),
        )

    @property
    def table(self) -> dict[str, NDArray[Any]]:
        """Columns of the connection table."""
        return self.streams.connections


def take(
    reader: FrameReader, builder: TableBuilder, rows: Int64, *, with_history: bool = True
) -> States:
    """The state of these connections. `with_history`: see `Streams.take`; a comparison of states
    does not need it."""
    streams = reader.streams.take(rows, with_history=with_history)
    clients = selected_info(builder.connections.client_info, rows)
    return States(streams, builder.correlator.take(rows), clients)


def put(
    reader: FrameReader, builder: TableBuilder, rows: Int64, states: States,
    waiting: dict[str, Any], row_of: Int64,
) -> None:  # fmt: skip
    """Set the state of connections. `rows`: the row of each one; -1: leave it out.

    `waiting`, `row_of`: see `TableBuilder.put`.
    """
    kept = np.flatnonzero(rows >= 0)
    rows, states = rows[kept], states.select(kept)
    reader.streams.put(rows, states.streams)
    builder.put(rows, states.exchanges, waiting, row_of)
    builder.connections.put(rows, states.clients)


def is_normal(table: ConnectionTable, streams: StreamTable, rows: Int64) -> Bools:
    """Whether these connections are in the normal state, apart from missing bytes."""
    normal: Bools = (table.protocol[rows] == KAFKA) & (streams.protocol[rows] == KAFKA)
    normal &= (table.client[rows] >= 0) & (table.closed[rows] == OPEN) & ~table.replaced[rows]
    stream = streams_at(rows)
    is_framed = (streams.state[stream] == FRAMED) & streams.has_origin[stream]
    normal &= is_framed.reshape(-1, 2).all(axis=1)
    return normal


def shift_packets(states: States, before: int, earlier: int) -> None:
    """Make numbers of packets absolute, which were counted from the start of a run.

    `before`: packets of the file before the run. `earlier`: those before its end, of the file that
    has the packets numbered 0 and less.
    """

    def moved(number: Int64) -> Int64:
        return number + np.where(number > 0, before, earlier)

    states.table["packet"] = moved(states.table["packet"])
    segments = states.streams.carried[0]
    segments.number[:] = moved(segments.number)
    states.exchanges.responses.packet[:] = moved(states.exchanges.responses.packet)
    packets = moved(int_column(states.exchanges.requests, "packet"))
    states.exchanges.requests = _replaced(states.exchanges.requests, packet=packets)


def continues(left: States, right: States, reserved: Bools) -> Bools:
    """Which of n normal connections continue: `right` is the state that `left` has.

    `reserved`: of each connection, whether the run has requests with reserved correlation ids.
    """
    same = np.ones(len(left.table["client"]), np.bool_)
    old, new = left.streams.streams, right.streams.streams
    for name in _SAME_CONNECTION:
        same &= left.table[name] == right.table[name]
    waits = (left.table["handshake"] == NEVER) & (left.table["syn_time"] != NEVER)
    same &= ~waits
    for name in _SAME_STREAM:
        same &= _all(old[name] == new[name])
    same &= old["protocol"] == new["protocol"]
    shift = old["next_position"] - new["next_position"]
    same &= _all(old["origin"] + old["next_position"].astype(np.uint32)
                 == new["origin"] + new["next_position"].astype(np.uint32))  # fmt: skip
    same &= _all(old["acknowledged"] <= old["next_position"])
    for name in _SAME_POSITION:
        same &= _all(old[name] == _moved(name, new[name], shift))
    same &= _same_segments(left, right, shift)
    if left.streams.round_trips and right.streams.round_trips:
        trips = left.streams.round_trips[0], right.streams.round_trips[0]
        for name in ("has_sent", "sent_end", "sent_time"):
            same &= _all(trips[0][name] == trips[1][name])
    same[[*left.streams.tls, *left.exchanges.tokens, *right.exchanges.tokens]] = False
    same[left.exchanges.responses.connection] = False
    same &= _same_exchanges(left, right, reserved)
    return same


def _same_segments(left: States, right: States, shift: Int64) -> Bools:
    """Whether the carried bytes of n connections are the same, and none is missing."""
    same = np.ones(len(shift), np.bool_)
    position = [each.streams.streams["next_position"] for each in (left, right)]
    first = [_carried(left, position[0]), _carried(right, position[1])]
    same &= _all(first[0]["at"] == first[1]["at"] + shift)
    for name in ("number", "capture", "time", "acknowledged"):
        same &= _all(first[0][name] == first[1][name])
    for sides, end in zip(first, position, strict=True):
        same &= _all(sides["at"] + sides["span"] == end) & _all(sides["length"] == sides["span"])
    return same


def _carried(states: States, next_position: Int64) -> dict[str, Int64]:
    """Of each stream: the first carried segment, and the sum of all; shape (n, 2)."""
    segments: Segments = states.streams.carried[0]
    order = np.lexsort((segments.at, segments.stream))
    segments = segments[order]
    stream, first = np.unique(segments.stream, return_index=True)
    columns = {"at": next_position.copy().reshape(-1)}
    columns["at"][stream] = segments.at[first]
    for name in ("number", "capture", "time", "acknowledged"):
        columns[name] = np.zeros(next_position.size, np.int64)
        columns[name][stream] = getattr(segments, name)[first]
    for name in ("span", "length"):
        total = np.bincount(segments.stream, getattr(segments, name), next_position.size)
        columns[name] = total.astype(np.int64)
    return {name: column.reshape(-1, 2) for name, column in columns.items()}


def _same_exchanges(left: States, right: States, reserved: Bools) -> Bools:
    """Whether n connections have the same pending requests, and the same state of matching."""
    counts = left.exchanges.columns, right.exchanges.columns
    unanswered = [each["sent"] - each["last_answered"] for each in counts]
    same = np.ones(len(unanswered[0]), np.bool_)
    same &= unanswered[0] == unanswered[1]
    for name in ("last_request_time", "last_response_time", "answers_all"):
        same &= counts[0][name] == counts[1][name]
    same &= _all(_relative_anchors(left) == _relative_anchors(right))
    next_id = counts[0]["next_id"] == counts[1]["next_id"]
    same &= next_id[:, 0] & (next_id[:, 1] | ~reserved)
    for relative in (_relative_requests, _relative_answers):
        owner, rows = zip(*(relative(each) for each in (left, right)), strict=True)
        number = [np.bincount(each, minlength=len(same)) for each in owner]
        same &= number[0] == number[1]
        kept = [same[each] for each in owner]
        differs = (rows[0][kept[0]] != rows[1][kept[1]]).any(axis=1)
        same[owner[0][kept[0]][differs]] = False
    return same


def _counters(states: States) -> tuple[Int64, Int64, Int64]:
    """Of n connections: number of requests, and of frames and gaps by sender: client, broker."""
    client = states.table["client"].astype(np.int64)
    ends = np.stack([client, 1 - client], axis=1)
    row = np.arange(len(client))[:, None]
    columns = states.streams.streams
    sent: Int64 = states.exchanges.columns["sent"]
    return sent, columns["frame_count"][row, ends], columns["gap_count"][row, ends]


def _of_anchors(sent: Int64, frames: Int64, gaps: Int64) -> Int64:
    """Counters of n connections, for the columns of `Anchor`; 0 for its sequence numbers."""
    zero = np.zeros_like(sent)
    return np.stack([sent, frames[:, 1], gaps[:, 0], gaps[:, 1], zero, zero], axis=1)


def _relative_anchors(states: States) -> Int64:
    sent, frames, gaps = _counters(states)
    now = _of_anchors(sent, frames, gaps)
    relative: Int64 = now - states.exchanges.columns["anchors"]
    return relative


def _relative_requests(states: States) -> tuple[Int64, Int64]:
    """The connection of each pending request; and what identifies it."""
    requests = states.exchanges.requests
    sent, _, gaps = _counters(states)
    owner, ordinal = int_column(requests, "connection"), int_column(requests, "ordinal")
    columns = [int_column(requests, name) for name in _REQUEST]
    columns.append(bool_column(requests, "repeats").astype(np.int64))
    columns.append(np.where(ordinal > 0, ordinal - sent[owner], 1))
    columns.append(int_column(requests, "run") - gaps[owner, 0])
    order = np.lexsort((int_column(requests, "id"), owner))
    return owner[order], np.stack(columns, axis=1)[order]


def _relative_answers(states: States) -> tuple[Int64, Int64]:
    """The connection of each response that is kept; and its ordinal and time."""
    owner, ordinal, time = states.exchanges.answers
    rows = np.stack([np.where(ordinal > 0, ordinal - _counters(states)[0][owner], 1), time], axis=1)
    order = np.lexsort((*rows.T, owner))
    return owner[order], rows[order]


def join(left: States, border: States, right: States, index: Int64) -> None:
    """Let the connections at `index` of `right` begin where those of `left` do.

    `left`: the state at the border, left by the run before. `border`: the same state, as the
    reader of the run has learned it. `right`: the state at the end of the run.
    """
    old, middle, new = (each.streams.streams for each in (left, border, right))
    shift = old["next_position"] - middle["next_position"]
    for name in _POSITIONS:
        moved = _moved(name, new[name][index], shift)
        if name == "acknowledged":
            moved = np.where(moved == FIRST_TIME, old[name], moved)
        new[name][index] = moved
    for name in _EARLIEST_STREAM:
        new[name][index] = old[name]
    acks = new["receiver_ack"][index]
    new["receiver_ack"][index] = np.where(acks == NEVER, old["receiver_ack"], acks)
    new["id_regression"][index] = np.maximum(new["id_regression"][index], old["id_regression"])
    for name in _EARLIEST:
        right.table[name][index] = left.table[name]
    right.table["opened"][index] |= left.table["opened"]
    for name in COUNTS:
        right.table[name][index] += left.table[name]
    if left.streams.round_trips and right.streams.round_trips:
        zero = "zero_windows"
        right.streams.round_trips[0][zero][index] += left.streams.round_trips[0][zero]
    _join_segments(right, index, shift)
    _join_exchanges(left, border, right, index)
    for name in ("frame_count", "gap_count"):
        new[name][index] += old[name] - middle[name]


def _join_segments(right: States, index: Int64, shift: Int64) -> None:
    shifts = np.zeros((len(right.table["client"]), 2), np.int64)
    shifts[index] = shift
    segments = right.streams.carried[0]
    segments.at[:] += shifts.reshape(-1)[segments.stream]


def _join_exchanges(left: States, border: States, right: States, index: Int64) -> None:
    counters = zip(_counters(left), _counters(border), strict=True)
    sent, frames, gaps = (old - new for old, new in counters)
    states = right.exchanges
    for name in ("sent", "last_answered"):
        states.columns[name][index] += sent
    states.columns["anchors"][index] += _of_anchors(sent, frames, gaps)
    old, middle = (each.exchanges.columns["next_id"][:, 1] for each in (left, border))
    new = states.columns["next_id"][index, 1]
    states.columns["next_id"][index, 1] = np.where(new == middle, old, new)
    count = len(right.table["client"])
    all_sent, all_frames, all_gaps = np.zeros(count, np.int64), *np.zeros((2, count, 2), np.int64)
    all_sent[index], all_frames[index], all_gaps[index] = sent, frames, gaps
    responses = states.responses
    responses.rank[:] += all_frames[responses.connection, 1]
    responses.run[:] += all_gaps[responses.connection, 1]
    owner, ordinal, _ = states.answers
    ordinal[ordinal > 0] += all_sent[owner[ordinal > 0]]
    owner, ordinal = (int_column(states.requests, name) for name in ("connection", "ordinal"))
    states.requests = _replaced(
        states.requests,
        ordinal=np.where(ordinal > 0, ordinal + all_sent[owner], 0),
        run=int_column(states.requests, "run") + all_gaps[owner, 0],
    )


def _moved(name: str, position: Int64, shift: Int64) -> Int64:
    """Positions of a column, moved by `shift`."""
    if name not in _NO_POSITION:
        return position + shift
    return np.where(position == _NO_POSITION[name], position, position + shift)


def _all(same: NDArray[Any]) -> Bools:
    """Whether both ends are the same."""
    return np.asarray(same.all(axis=1), np.bool_)


def _replaced(table: pa.Table, **columns: Int64) -> pa.Table:
    for name, values in columns.items():
        table = with_column(table, name, pa.array(values))
    return table

"""Rows: what a turn of the conversation adds to each table.

Each function takes a `Turn` and gives a record batch in the schema that `tables` declares. Rows of
one batch are in order of time, those of one time in order of connection.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.correlator import Turn
from dissector.exchanges.ordering import ordered
from dissector.exchanges.request_table import partitions
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.streams.byteview import ranges
from dissector.tables.arrow import (
    Picked,
    batch,
    codes,
    masked,
    one_chunk,
    spread,
)
from dissector.tables.errors import sorted_codes
from dissector.tables.schema import EXCHANGES
from dissector.tables.shared_columns import Endpoints, api_of, error_names

STATUS = pa.array(["answered", "no_reply_expected", "unanswered", "request_missing", "undecoded"])
ANSWERED, NO_REPLY_EXPECTED, UNANSWERED, REQUEST_MISSING, UNDECODED = range(5)


def exchanges(
    turn: Turn, names: TopicNames, endpoints: Endpoints, captures: Sequence[str]
) -> pa.RecordBatch:
    """A row for each exchange that came to its end in this turn."""
    asked, replied, kind = _ended(turn)
    responses = _responses(turn, names)
    request, response = Picked(turn.requests, asked), Picked(responses, replied)

    def either(name: str) -> pa.Array:
        one = request[name]
        return pc.coalesce(one, response[name]) if one.null_count else one

    connection, is_token = either("connection"), request["is_token"]
    latency = pc.subtract(response["time"], request["end_time"])
    topics = _lists(turn.requests["topics"], asked, responses["topics"], replied)
    columns = {
        "capture": spread(pa.array(captures, pa.string()), either("capture").to_numpy()),
        "connection_id": connection,
        **endpoints.columns(connection.to_numpy()),
        "api_key": _unless(is_token, request["api_key"]),
        "api": api_of(request),
        "api_version": _unless(is_token, request["version"]),
        "correlation_id": _unless(is_token, either("correlation_id")),
        "client_id": request["client_id"],
        "status": spread(STATUS, _status(kind, request, response)),
        "request_time": request["time"],
        "request_end_time": request["end_time"],
        "response_time": response["time"],
        "response_end_time": response["end_time"],
        "latency_ms": pc.divide(pc.cast(latency, pa.float64(), safe=False), 1e6),
        "request_packet": request["packet"],
        "response_packet": response["packet"],
        "request_bytes": request["bytes"],
        "response_bytes": response["bytes"],
        "in_flight": request["in_flight"],
        "throttle_time_ms": response["throttle_time_ms"],
        "error_code": response["error_code"],
        "error": error_names(response["error_code"]),
        "error_count": response["error_count"],
        "acks": request["acks"],
        "max_wait_ms": request["max_wait_ms"],
        "topics": names.complete(topics),
        "partition_count": either("partition_count"),
        "record_count": either("record_count"),
        "record_bytes": either("record_bytes"),
        "group_id": request["group_id"],
        "member_id": _members(request["member_id"], response["member_id"]),
        "transactional_id": request["transactional_id"],
    }
    rows = batch(EXCHANGES, columns)
    if "frame" not in turn.requests.column_names:
        return rows
    replies = [turn.response.frame(index) for index in range(len(turn.answered))]
    replies += [turn.orphan_frame(index) for index in range(len(turn.orphans))]
    frames = pa.array(replies, pa.large_binary()).take(pa.array(replied, mask=replied < 0))
    rows = rows.append_column("request_frame", one_chunk(request["frame"]))
    return rows.append_column("response_frame", frames)


def _ended(turn: Turn) -> tuple[Int64, Int64, Int64]:
    """The exchanges that came to their end, in order of their first byte.

    Row of each one's request, index of its response (orphans come behind the others), -1 where
    there is none; and its status, unless it turns out undecoded.
    """
    answers, orphans = len(turn.answered), len(turn.orphans)
    none = np.full(orphans, -1)
    asked = np.concatenate([turn.answered, turn.silent, turn.unanswered, none])
    unheard = np.full(len(turn.silent) + len(turn.unanswered), -1)
    replied = np.concatenate([np.arange(answers), unheard, answers + np.arange(orphans)])
    counts = [answers, len(turn.silent), len(turn.unanswered), orphans]
    kind = np.repeat([ANSWERED, NO_REPLY_EXPECTED, UNANSWERED, REQUEST_MISSING], counts)
    sent = asked[: len(asked) - orphans]
    time = np.concatenate([turn.requests["time"].to_numpy()[sent], turn.orphans.time])
    who = [turn.requests["connection"].to_numpy()[sent], turn.orphans.connection]
    order = ordered(time, np.concatenate(who))
    return asked[order], replied[order], kind[order]


def _responses(turn: Turn, names: TopicNames) -> pa.Table:
    """What the responses say, those that answer first, then the orphans."""
    side = turn.response
    heads = side.heads + turn.orphans
    total, count = len(heads), len(side.heads)
    message, code = sorted_codes(side.facts)
    first, index = np.unique(message, return_index=True)
    error_code = np.zeros(count, np.int64)
    error_code[first] = code[index]
    throttle, throttled = side.facts.numbers("throttle_time_ms")
    unnamed = turn.requests["topics"].is_null().to_numpy()[turn.answered]
    columns = {
        # Of a message that is cut, a 0 does not say that there is no other.
        "error_code": pa.array(error_code, mask=~side.facts.good & (error_code == 0)),
        "error_count": pa.array(np.bincount(message, minlength=count), mask=~side.facts.good),
        "throttle_time_ms": pa.array(throttle, mask=~throttled),
        "decoded": pa.array(side.decoded),
        "member_id": side.facts.texts("member_id"),
        **partitions(side.facts, names, unnamed),
    }
    rest = total - count
    return pa.table(
        {
            "connection": heads.connection,
            "correlation_id": heads.correlation_id,
            "capture": heads.capture,
            "packet": heads.packet,
            "time": heads.time,
            "end_time": heads.end_time,
            "bytes": heads.bytes,
            **{
                name: pa.concat_arrays([column, pa.nulls(rest, column.type)]) if rest else column
                for name, column in columns.items()
            },
        }
    )


def _status(kind: Int64, request: Picked, response: Picked) -> Int64:
    sides = request["decoded"], response["decoded"]
    if all(pc.all(side, min_count=0).as_py() for side in sides):
        return kind
    good = pc.and_(*(pc.fill_null(side, True) for side in sides))
    # That a request was never answered is known without its fields.
    return np.where(np.asarray(good) | (kind == UNANSWERED), kind, UNDECODED)


def _lists(one: pa.ChunkedArray, row: Int64, other: pa.ChunkedArray, place: Int64) -> pa.Array:
    """For each of n rows the list at `row` of the one column, if there is one (-1, or null), else
    that at `place` of the other; list<string>."""
    first, second = one_chunk(one), one_chunk(other)
    if second.null_count == len(second):
        return first.take(masked(row, row < 0))
    lists = pa.concat_arrays([first, second])
    offsets = lists.offsets.to_numpy()
    chosen = np.where(row < 0, len(lists), row)
    none = np.append(np.asarray(lists.is_null()), True)
    chosen = np.where(none[chosen], np.where(place < 0, len(lists), len(first) + place), chosen)
    none = none[chosen]
    chosen = np.where(none, 0, chosen)
    length = np.where(none, 0, np.diff(offsets, append=0)[chosen])
    position, border = ranges(offsets[chosen].astype(np.int64), length)
    return pa.ListArray.from_arrays(
        pa.array(border.astype(np.int32)),
        lists.values.take(pa.array(position)),
        mask=pa.array(none),
    )


def _members(asked: pa.DictionaryArray, told: pa.DictionaryArray) -> pa.Array:
    """The member of each exchange; that of the response where the request has none, or ""."""
    words = pa.concat_arrays([asked.dictionary, told.dictionary])
    named = np.arange(len(asked.dictionary) + 1, dtype=np.int32)
    named[-1] = -1  # where the code of null leads, too
    named[:-1][np.asarray(pc.equal(asked.dictionary, ""))] = -1
    code = named[codes(asked)]
    if told.null_count < len(told):
        answer = codes(told)
        given = np.flatnonzero((code < 0) & (answer >= 0))
        code[given] = len(asked.dictionary) + answer[given]
    return words.take(masked(code, code < 0))


def _unless(is_token: pa.Array, column: pa.Array) -> pa.Array:
    """The column, null for tokens, whose request has no header."""
    return pc.if_else(pc.fill_null(is_token, False), None, column)

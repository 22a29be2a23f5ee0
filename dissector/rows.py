"""Rows: what a turn of the conversation adds to each table.

Each function takes a `Turn` and gives a record batch in the schema that `tables` declares. Rows of
one batch are in order of time, those of one time in order of connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.arrow import (
    Picked,
    batch,
    by_code,
    codes,
    joined,
    masked,
    no_rows,
    one_batch,
    one_chunk,
    spread,
)
from dissector.conversation.describe import partitions
from dissector.conversation.dialogue import Turn
from dissector.conversation.facts import Facts, Group
from dissector.conversation.ordering import ordered
from dissector.conversation.sasl import SASL_TOKEN
from dissector.conversation.topic_names import TopicNames, uuid_text
from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.protocol import catalog
from dissector.protocol.walked import Column
from dissector.streams.bytespace import ranges
from dissector.tables import ERRORS, EXCHANGES, PROBLEMS, TOPICS

STATUS = pa.array(["answered", "no_reply_expected", "unanswered", "request_missing", "undecoded"])
ANSWERED, NO_REPLY_EXPECTED, UNANSWERED, REQUEST_MISSING, UNDECODED = range(5)

IN_ORDER = [("time", "ascending"), ("connection_id", "ascending")]
"""How Arrow is told to sort rows."""


class Endpoints(Protocol):
    """Gives the ends of connections as text."""

    def columns(self, connection: Int64) -> dict[str, pa.Array]:
        """client_ip, client_port, broker_ip, broker_port of each of n connections."""


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


def errors(turn: Turn, names: TopicNames, endpoints: Endpoints) -> pa.RecordBatch:
    """A row for each error code that is not 0 in the responses of this turn."""
    parts = []
    for group, column, select in _codes(turn.response.facts):
        topic = group.texts_beside(column, "topic", select).cast(pa.string())
        topic_id = group.uuids_beside(column, "topic_id", select)
        parts.append(
            pa.table(
                {
                    "time": turn.response.heads.time[group.message(column)[select]],
                    "connection": turn.response.heads.connection[group.message(column)[select]],
                    "message": group.message(column)[select],
                    "at": column.at[select],
                    "path": group.paths(column, select),
                    "topic": pc.coalesce(topic, names.resolve(topic_id).cast(pa.string())),
                    "partition": group.numbers_beside(column, "partition", select),
                    "error_code": pa.array(_values(column)[select]),
                    "error_message": group.texts_beside(column, "error_message", select).cast(
                        pa.string()
                    ),
                }
            )
        )
    if not parts:
        return no_rows(ERRORS)
    order = ("time", "connection", "message", "at")
    table = pa.concat_tables(parts).sort_by([(name, "ascending") for name in order])
    message = table["message"].to_numpy()
    request = turn.requests.take(pa.array(turn.answered[message]))
    code = table["error_code"]
    columns = {
        "connection_id": request["connection"],
        "correlation_id": request["correlation_id"],
        "time": table["time"],
        **endpoints.columns(request["connection"].to_numpy()),
        "client_id": request["client_id"],
        "api": api_of(request),
        "api_version": request["version"],
        "path": table["path"],
        "topic": names.complete(one_chunk(table["topic"])),
        "partition": table["partition"],
        "error_code": code,
        "error": error_names(code),
        "retriable": by_code(code, catalog.is_retriable, pa.bool_()),
        "error_message": table["error_message"],
    }
    return batch(ERRORS, columns)


def told(turn: Turn) -> pa.RecordBatch:
    """What this turn's responses tell of partitions: columns of `topics`, and connection_id."""
    parts = [pa.schema([*TOPICS.schema, *_TELLER]).empty_table()]
    for group, column in turn.response.facts.columns("leader"):
        if not any(group.walked.by_role("replicas")):
            continue  # a Produce or Fetch response that names a new leader, and no more
        every = np.arange(len(column.row), dtype=np.int64)
        message = group.message(column)
        columns = {
            "topic": group.texts_beside(column, "topic", every).cast(pa.string()),
            "topic_id": by_code(
                group.uuids_beside(column, "topic_id", every), uuid_text, pa.string()
            ),
            "partition": group.numbers_beside(column, "partition", every),
            "leader": pa.array(_values(column)),
            "leader_epoch": group.numbers_beside(column, "leader_epoch", every),
            "replicas": group.lists_within(column, "replicas"),
            "isr": group.lists_within(column, "isr"),
            "time": turn.response.heads.time[message],
        }
        teller = [turn.response.heads.connection[message], message, column.at]
        rows = pa.Table.from_batches([batch(TOPICS, columns)])
        for name, values in zip(_TELLER, teller, strict=True):
            rows = rows.append_column(name, pa.array(values))
        parts.append(rows)
    order = ("time", *_TELLER.names)
    table = pa.concat_tables(parts).sort_by([(name, "ascending") for name in order])
    return one_batch(table.drop_columns(_TELLER.names[1:]))


_TELLER = pa.schema({"connection_id": pa.int64(), "message": pa.int64(), "at": pa.int64()})


class Topics:
    """Rows of the topics table: each partition when first told, and whenever told otherwise."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def news(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """Of what was `told`, what was not known."""
        return table.select(TOPICS.schema.names).take(pa.array(self._news(table)))

    def _news(self, table: pa.RecordBatch) -> Int64:
        """Rows that tell something else than the row before them of the same partition."""
        who = joined(table["topic"], table["topic_id"], table["partition"])
        lists = [
            pc.binary_join(one_chunk(table[name]).cast(pa.list_(pa.string())), ",")
            for name in ("replicas", "isr")
        ]
        told = joined(who, table["leader"], table["leader_epoch"], *lists)
        partition = who.dictionary_encode().indices.to_numpy()
        state = told.dictionary_encode().indices.to_numpy()
        order = np.argsort(partition, kind="stable")
        changed = np.ones(len(order), np.bool_)
        changed[1:] = (np.diff(partition[order]) != 0) | (np.diff(state[order]) != 0)
        news = []
        for index in order[changed].tolist():
            key, value = who[index].as_py(), told[index].as_py()
            if self._told.get(key) != value:
                self._told[key] = value
                news.append(index)
        return np.array(sorted(news), np.int64)


def problems(found: Sequence[Problem]) -> pa.RecordBatch:
    """A row for each problem."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([getattr(each, column.name) for each in found], column.type)
            for column in PROBLEMS.columns
        ],
        schema=PROBLEMS.schema,
    )


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


def _codes(facts: Facts) -> Iterator[tuple[Group, Column, Int64]]:
    """The error codes that are not 0: for each column of them, which of its values."""
    for group, column in facts.columns("error_code"):
        select = np.flatnonzero(_values(column))
        if len(select):
            yield group, column, select


def sorted_codes(facts: Facts) -> tuple[Int64, Int64]:
    """Message and error code of every code that is not 0, in order of message and address."""
    message, at, code = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for group, column, select in _codes(facts):
        message.append(group.message(column)[select])
        at.append(column.at[select])
        code.append(_values(column)[select])
    who = np.concatenate(message)
    order = np.lexsort((np.concatenate(at), who))
    return who[order], np.concatenate(code)[order]


def _values(column: Column) -> Int64:
    assert column.values is not None
    return column.values.astype(np.int64)


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


def api_of(request: Picked | pa.Table) -> pa.Array:
    """Name of each request's API; null where no API has that key, or the request is missing."""
    name = by_code(request["api_key"], catalog.api_name, pa.string())
    is_token = request["is_token"]
    return pc.if_else(is_token, SASL_TOKEN, name) if pc.any(is_token).as_py() else name


def _unless(is_token: pa.Array, column: pa.Array) -> pa.Array:
    """The column, null for tokens, whose request has no header."""
    return pc.if_else(pc.fill_null(is_token, False), None, column)


def error_names(code: pa.ChunkedArray) -> pa.ChunkedArray:
    return by_code(code, catalog.error_name, pa.string())

"""Rows of the table `exchanges`: each request with its response."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.arguments import name_text
from dissector.byteview import ranges
from dissector.exchanges.columns import (
    as_array,
    bool_column,
    dictionary_codes,
    int_column,
    masked,
    unmasked,
)
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.message_headers import CORRELATION_BYTES
from dissector.exchanges.ordering import ordered
from dissector.exchanges.request_table import partitions
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.tables.arrow import SelectedRows, encode, take_words, to_batch, unless_empty
from dissector.tables.errors import first_codes
from dissector.tables.schema import EXCHANGES
from dissector.tables.shared_columns import Endpoints, api_of, error_names

STATUS = pa.array(["answered", "no_reply_expected", "unanswered", "request_missing", "undecoded"])
ISOLATION_LEVELS = MappingProxyType({0: "read_uncommitted", 1: "read_committed"})
ANSWERED, NO_REPLY_EXPECTED, UNANSWERED, REQUEST_MISSING, UNDECODED = range(5)


SEQUENCES = ("request_sequence", "response_sequence")
"""Additional columns: the TCP sequence number of the first byte of each message. In a decrypted
stream it counts decrypted bytes."""
MESSAGES = (*SEQUENCES, "request_frame", "response_frame")
"""Additional columns: these, and the captured bytes of each message without its 4-byte size."""
_SEQUENCE_MASK = 0xFFFFFFFF
_OF_MESSAGES = ("time", "end_time", "packet", "bytes")
"""The name of such a column starts with `request_` or `response_`."""
_OF_REQUESTS = (
    "client_id", "in_flight", "acks", "max_wait_ms", "min_bytes", "max_bytes", "group_id",
    "transactional_id",
)  # fmt: skip
_OF_RESPONSES = ("throttle_time_ms", "error_code", "error_count")
_OF_EITHER = ("partition_count", "record_count", "record_bytes")
"""Of the response if it is null in the request."""


def exchanges(
    block: CorrelatedBlock, names: TopicNames, endpoints: Endpoints, captures: Sequence[str],
    *, with_sequences: bool = False, dictionaries: bool = False,
) -> pa.RecordBatch:  # fmt: skip
    """A row for each exchange that ended in this block, in order of time and connection.

    `dictionaries`: see `to_batch`.
    """
    request_row, response_row, kind, connection = _ended(block)
    responses = _responses(block, names)
    request = SelectedRows(block.requests, request_row)
    response = SelectedRows(responses, response_row)

    def either(name: str) -> pa.Array:
        column = request[name]
        return pc.coalesce(column, response[name]) if column.null_count else column

    def unless_token(column: pa.Array) -> pa.Array:
        return column if is_token is None else pc.if_else(is_token, None, column)

    is_token = _tokens(block, request_row)
    start, end = (unmasked(column)[0] for column in (response["time"], request["end_time"]))
    topics = _lists(
        as_array(block.requests["topics"]), request_row, as_array(responses["topics"]), response_row
    )
    columns = {
        "capture": take_words(_names(captures), either("capture").to_numpy()),
        "connection_id": connection,
        **endpoints.columns(connection),
        **{f"request_{name}": request[name] for name in _OF_MESSAGES},
        **{f"response_{name}": response[name] for name in _OF_MESSAGES},
        **{name: request[name] for name in _OF_REQUESTS},
        **{name: response[name] for name in _OF_RESPONSES},
        **{name: either(name) for name in _OF_EITHER},
        "api_key": unless_token(request["api_key"]),
        "api": api_of(request["api_key"], is_token),
        "api_version": unless_token(request["version"]),
        "correlation_id": unless_token(either("correlation_id")),
        "status": take_words(STATUS, _status(block, request_row, response_row, kind)),
        "latency_ms": masked((start - end) / 1e6, kind != ANSWERED),
        "error": error_names(response["error_code"]),
        "isolation_level": encode(request["isolation_level"], ISOLATION_LEVELS.get),
        "client_rack": unless_empty(request["client_rack"]),
        "topics": topics,
        "member_id": _members(request["member_id"], response["member_id"]),
    }
    rows = to_batch(EXCHANGES, columns, dictionaries=dictionaries)
    if with_sequences:
        begin = pc.subtract(request["end"], request["bytes"])
        begins = pc.bit_wise_and(begin, _SEQUENCE_MASK), response["sequence"]
        for name, column in zip(SEQUENCES, begins, strict=True):
            rows = rows.append_column(name, column)
    if "frame" in block.requests.column_names:
        rows = rows.append_column("request_frame", as_array(request["frame"]))
        rows = rows.append_column("response_frame", _response_frames(block, response_row))
    return rows


def _response_frames(block: CorrelatedBlock, index: Int64) -> pa.Array:
    """The captured bytes of the responses with these indexes; -1: no response."""
    headers = block.response.headers + block.unmatched_responses
    return block.response.frames_of(headers).take(pa.array(index, mask=index < 0))


def _ended(block: CorrelatedBlock) -> tuple[Int64, Int64, Int64, Int64]:
    """The exchanges that ended in this block, in order of their first byte.

    Returns the row of each request, the index of each response, with -1 for a missing one, the
    status, apart from undecoded, and the connection. Unmatched responses follow the others.
    """
    answered, unmatched = len(block.answered), len(block.unmatched_responses)
    missing = np.full(unmatched, -1)
    request = np.concatenate([block.completed, missing])
    no_response = np.full(len(block.completed) - answered, -1)
    response = np.concatenate([np.arange(answered), no_response, answered + np.arange(unmatched)])
    counts = [answered, len(block.no_reply_expected), len(block.unanswered), unmatched]
    kind = np.repeat([ANSWERED, NO_REPLY_EXPECTED, UNANSWERED, REQUEST_MISSING], counts)
    times = [int_column(block.requests, "time"), block.unmatched_responses.time]
    connections = [int_column(block.requests, "connection"), block.unmatched_responses.connection]
    time, connection = (
        np.concatenate([column.take(block.completed), of_unmatched])
        for column, of_unmatched in (times, connections)
    )
    order = ordered(time, connection)
    return request.take(order), response.take(order), kind.take(order), connection.take(order)


def _names(captures: Sequence[str]) -> pa.Array:
    """The names of files as texts: URLs, and names that are not UTF-8, take a step per name."""
    with suppress(UnicodeEncodeError):
        names = pa.array(captures, pa.string())
        if not pc.any(pc.match_substring(names, "://")).as_py():
            return names
    return pa.array(map(name_text, captures), pa.string())


def _responses(block: CorrelatedBlock, names: TopicNames) -> pa.Table:
    """The columns of responses: matched responses first, then unmatched ones."""
    responses = block.response
    headers = responses.headers + block.unmatched_responses
    total, count = len(headers), len(responses.headers)
    error_code, error_count = first_codes(responses.fields)
    unnamed = block.requests["topics"].is_null().to_numpy()[block.answered]
    columns = {
        # In an incomplete message, an error code may follow the last captured byte.
        "error_code": masked(
            error_code.astype(np.int16), ~responses.fields.good & (error_code == 0)
        ),
        "error_count": masked(error_count.astype(np.int32), ~responses.fields.good),
        "throttle_time_ms": responses.fields.number_column("throttle_time_ms", np.int32),
        "member_id": responses.fields.texts("member_id"),
        **partitions(responses.fields, names, unnamed),
    }
    unmatched = total - count
    return pa.table(
        {
            **headers.columns(CORRELATION_BYTES),
            "sequence": headers.sequence,
            **{
                name: pa.concat_arrays([column, pa.nulls(unmatched, column.type)])
                if unmatched
                else column
                for name, column in columns.items()
            },
        }
    )


def _status(
    block: CorrelatedBlock, request: Int64, response: Int64, kind: Int64
) -> NDArray[np.integer]:
    """The status of each exchange. `request`, `response`, `kind`: see `_ended`."""
    requests, responses = bool_column(block.requests, "decoded"), block.response.decoded
    if requests.all() and responses.all():
        return kind
    missing = np.ones(len(block.unmatched_responses) + 1, np.bool_)  # also at the index -1
    good = np.append(requests, True)[request] & np.concatenate([responses, missing])[response]
    # A request is known to be unanswered without its fields.
    return np.where(good | (kind == UNANSWERED), kind, UNDECODED)


def _lists(requests: pa.Array, request: Int64, responses: pa.Array, response: Int64) -> pa.Array:
    """The list of each request, or where it is missing or null, of its response; list<string>.

    `requests`, `responses`: of type `request_table.TOPICS`, without empty lists. `request`,
    `response`: rows of them, -1 for a missing one.
    """
    size = len(requests)
    begin = requests.offsets.to_numpy()
    values, row, length = requests.values, request, np.append(np.diff(begin), 0)
    if responses.null_count < len(responses):
        offsets = responses.offsets.to_numpy() + np.int32(len(values))
        values = pa.concat_arrays([values, responses.values])
        begin = np.concatenate([begin[:-1], offsets])
        length = np.concatenate([length[:-1], np.diff(offsets), [0]])
        fallback = np.where(response < 0, -1, size + response)
        row = np.where(length[np.where(request < 0, -1, request)] > 0, request, fallback)
    count = length.take(row, mode="wrap")
    chosen, borders = ranges(begin.take(row, mode="wrap").astype(np.int64), count)
    return pa.ListArray.from_arrays(
        pa.array(borders.astype(np.int32)),
        values.dictionary.take(pa.array(dictionary_codes(values).take(chosen))),
        mask=pa.array(count == 0),
    )


def _members(request: pa.DictionaryArray, response: pa.DictionaryArray) -> pa.Array:
    """The member of each exchange: of the request, or of the response if the request has none."""
    request = unless_empty(request)
    if not request.null_count or response.null_count == len(response):
        return request
    words = pa.concat_arrays([request.dictionary, response.dictionary]).dictionary_encode()
    number = np.append(words.indices.to_numpy(), -1)  # that of null
    code, response_code = dictionary_codes(request), dictionary_codes(response)
    response_code = np.where(response_code < 0, -1, len(request.dictionary) + response_code)
    return take_words(words.dictionary, number[np.where(code < 0, response_code, code)])


def _tokens(block: CorrelatedBlock, request: Int64) -> pa.Array | None:
    """Which exchanges are SASL tokens, whose request has no header; None if there are none."""
    is_token = bool_column(block.requests, "is_token")
    return pa.array(np.append(is_token, False)[request]) if is_token.any() else None

"""Rows of the table `problems`, and the problems of messages that were not decoded.

The column decoder reports only that a message does not match its layout. The tree decoder reads
these few messages again, and names the field and the offset of the first difference. Messages with
surplus bytes are decoded, and reported too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

import numpy as np
import pyarrow as pa

from dissector.arguments import name_text
from dissector.errors import DecodeError, TooManyElements, UnknownVersion
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.decoded_messages import DecodedMessages
from dissector.exchanges.message_headers import HEADER_BYTES, VERSION_BYTES
from dissector.problems import Problem
from dissector.protocol import registry
from dissector.protocol.message import explain_request, explain_response
from dissector.protocol.notation import Direction
from dissector.tables.schema import PROBLEMS


def decode_problems(block: CorrelatedBlock, captures: Sequence[str]) -> Iterator[Problem]:
    """A problem for each message of the block that was not decoded, or has surplus bytes."""
    for messages in (block.request, block.response):
        headers, decoded, surplus = messages.headers, messages.decoded, messages.surplus
        for index in np.flatnonzero(~decoded | (surplus > 0)).tolist():
            size = int(headers.bytes[index])
            if decoded[index]:
                kind, affected = "surplus_bytes", int(surplus[index])
                offset = size - 4 - affected
                follow = "byte follows" if affected == 1 else "bytes follow"
                detail = f"{_name(messages, index)}: {affected} {follow} the last field"
            else:
                kind, error = _decode_error(messages, index)
                detail, offset, affected = str(error), error.offset, size
            yield Problem(
                stage="protocol",
                kind=kind,
                detail=detail,
                time=int(headers.time[index]),
                capture=captures[int(headers.capture[index])],
                packet=int(headers.packet[index]),
                connection_id=int(headers.connection[index]),
                offset=offset,
                bytes=affected,
            )


def _name(decoded_messages: DecodedMessages, index: int) -> str:
    """API, version and direction of a message; of a request without these bytes its direction."""
    messages = decoded_messages.fields.messages
    api_key, version = int(messages.api_key[index]), int(messages.version[index])
    direction = messages.direction.name.lower()
    headers = decoded_messages.headers
    if direction == "request" and headers.end[index] - headers.start[index] < VERSION_BYTES:
        return direction
    name = registry.api_name(api_key) or f"API {api_key}"
    return f"{name} v{version} {direction}"


def _decode_error(decoded_messages: DecodedMessages, index: int) -> tuple[str, DecodeError]:
    """Problem kind of a message that was not decoded, and the error."""
    messages, frame = decoded_messages.fields.messages, decoded_messages.frame(index)
    api_key, version = int(messages.api_key[index]), int(messages.version[index])
    if messages.direction == Direction.REQUEST:
        explanation = explain_request(frame)
    else:
        explanation = explain_response(frame, api_key, version)
    error = explanation.error
    if error is None:  # only the header is invalid
        error = DecodeError("the header does not match the message", offset=0)
    if isinstance(error, UnknownVersion):
        return "unknown_version", error
    detail = f"{_name(decoded_messages, index)}: {error.detail}"
    headers = decoded_messages.headers
    kind = "malformed"
    if isinstance(error, TooManyElements):
        kind = "too_many_elements"
    elif headers.end[index] - headers.start[index] < HEADER_BYTES and not headers.whole[index]:
        kind = "cut_header"
    return kind, DecodeError(detail, offset=error.offset, path=error.path)


def _encodable(value: str | int | None) -> str | int | None:
    """The value; a text may contain the name of a file."""
    return name_text(value) if isinstance(value, str) else value


def problem_rows(problems: Sequence[Problem]) -> pa.RecordBatch:
    """A row for each problem."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array(map(_encodable, map(attrgetter(column.name), problems)), column.type)
            for column in PROBLEMS.columns
        ],
        schema=PROBLEMS.schema,
    )

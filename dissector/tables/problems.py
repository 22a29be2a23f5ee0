"""Faults: messages that the definitions do not know, or do not fit, as problems.

The column walker only reports that a message does not fit its layout. The explaining walker reads
those few messages again, and names the field and the offset of the first difference. Messages with
surplus bytes are decoded, and reported too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dissector.errors import DecodeError, TooManyElements, UnknownVersion
from dissector.exchanges.correlator import Side, Turn
from dissector.problems import Problem
from dissector.protocol import registry
from dissector.protocol.message import explain_request, explain_response
from dissector.protocol.notation import Direction
from dissector.tables.schema import PROBLEMS


def decode_problems(turn: Turn, captures: Sequence[str]) -> list[Problem]:
    """A problem for each message of this turn that could not be decoded, or has surplus bytes."""
    return [
        problem
        for side in (turn.request, turn.response)
        for problem in _side_problems(side, captures)
    ]


def _side_problems(side: Side, captures: Sequence[str]) -> Iterator[Problem]:
    heads, decoded, surplus = side.heads, side.decoded, side.surplus
    for index in np.flatnonzero(~decoded | (surplus > 0)).tolist():
        size = int(heads.bytes[index])
        if decoded[index]:
            kind, concerned = "surplus_bytes", int(surplus[index])
            offset = size - 4 - concerned
            follow = "byte follows" if concerned == 1 else "bytes follow"
            detail = f"{_name(side, index)}: {concerned} {follow} the last field"
        else:
            kind, fault = _fault(side, index)
            detail, offset, concerned = str(fault), fault.offset, size
        yield Problem(
            stage="protocol",
            kind=kind,
            detail=detail,
            time=int(heads.time[index]),
            capture=captures[int(heads.capture[index])],
            packet=int(heads.packet[index]),
            connection_id=int(heads.connection[index]),
            offset=offset,
            bytes=concerned,
        )


def _name(side: Side, index: int) -> str:
    """API, version and direction of a message."""
    messages = side.messages
    api_key, version = int(messages.api_key[index]), int(messages.version[index])
    name = registry.api_name(api_key) or f"API {api_key}"
    return f"{name} v{version} {messages.direction.name.lower()}"


def _fault(side: Side, index: int) -> tuple[str, DecodeError]:
    messages, frame = side.messages, side.frame(index)
    api_key, version = int(messages.api_key[index]), int(messages.version[index])
    if messages.direction == Direction.REQUEST:
        explanation = explain_request(frame)
    else:
        explanation = explain_response(frame, api_key, version)
    fault = explanation.error
    if fault is None:  # the header alone contradicts itself
        fault = DecodeError("the header does not fit its message", offset=0)
    if isinstance(fault, UnknownVersion):
        return "unknown_version", fault
    what = f"{_name(side, index)}: {fault.detail}"
    kind = "too_many_elements" if isinstance(fault, TooManyElements) else "malformed"
    return kind, DecodeError(what, offset=fault.offset, path=fault.path)


def problem_rows(found: Sequence[Problem]) -> pa.RecordBatch:
    """A row for each problem."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([getattr(each, column.name) for each in found], column.type)
            for column in PROBLEMS.columns
        ],
        schema=PROBLEMS.schema,
    )

"""One exchange as an object: a row of the table `exchanges`, with the bytes of its messages.

Nothing is redacted here: frames, bodies and explanations are the captured bytes. `secrets` decides
which fields must not be printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from dissector.embedded import MessageContext, explain_token, unfold
from dissector.embedded.records import Decode
from dissector.errors import DissectorError
from dissector.exchanges.sasl import SASL_TOKEN
from dissector.protocol.explain import Explanation
from dissector.protocol.message import (
    Message,
    decode_request,
    decode_response,
    explain_request,
    explain_response,
)
from dissector.protocol.notation import Direction

DirectionName: TypeAlias = Literal["request", "response"]


@dataclass(frozen=True, slots=True, repr=False)
class Exchange:
    """A request with its response: a row of the table `exchanges`, with the bytes of its messages.

    The attributes are the columns of the table. None is null. Times are integers: nanoseconds since
    1970 in UTC, as ``pandas.to_datetime(time, utc=True)`` expects them.
    """

    capture: str
    connection_id: int
    client_ip: str
    client_port: int
    broker_ip: str
    broker_port: int
    api_key: int | None
    api: str | None
    api_version: int | None
    correlation_id: int | None
    client_id: str | None
    status: str
    request_time: int | None
    request_end_time: int | None
    response_time: int | None
    response_end_time: int | None
    latency_ms: float | None
    request_packet: int | None
    response_packet: int | None
    request_bytes: int | None
    response_bytes: int | None
    in_flight: int | None
    throttle_time_ms: int | None
    error_code: int | None
    error: str | None
    error_count: int | None
    acks: int | None
    max_wait_ms: int | None
    min_bytes: int | None
    max_bytes: int | None
    isolation_level: str | None
    client_rack: str | None
    topics: list[str] | None
    partition_count: int | None
    record_count: int | None
    record_bytes: int | None
    group_id: str | None
    member_id: str | None
    transactional_id: str | None
    request_frame: bytes | None
    """The captured bytes of the request, without its 4-byte size."""
    response_frame: bytes | None
    request_sequence: int | None = None
    """TCP sequence number of the request's first byte; not a column."""
    response_sequence: int | None = None
    """The same of the response."""
    sasl_mechanism: str | None = None
    """SASL mechanism of the connection, from SaslHandshake; not a column."""
    topic_names: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Topic names by id, learned so far; not a column."""

    @property
    def request(self) -> Message | None:
        """The decoded request; None if there is none. Raises DecodeError, UnknownVersion."""
        if self.request_frame is None or self.api_key is None:
            return None
        return decode_request(self.request_frame)

    @property
    def response(self) -> Message | None:
        """The decoded response; None if it or its request is missing. Raises as `request`."""
        if self.response_frame is None or self.api_key is None or self.api_version is None:
            return None
        return decode_response(self.response_frame, self.api_key, self.api_version)

    def frame(self, direction: Direction) -> bytes | None:
        """The captured bytes of a message, without its 4-byte size; None if it is missing."""
        return (self.request_frame, self.response_frame)[direction]

    def __repr__(self) -> str:
        version = "" if self.api_version is None else f" v{self.api_version}"
        latency = "" if self.latency_ms is None else f" after {self.latency_ms:,.3f} ms"
        sizes = [
            f"{name} {size:,} bytes"
            for name, size in (("request", self.request_bytes), ("response", self.response_bytes))
            if size is not None
        ]
        parts = [
            f"correlation_id={self.correlation_id}",
            f"client_id={self.client_id!r}",
            f"{self.status}{latency}",
            *sizes,
        ]
        return f"<Exchange {self.api or self.api_key}{version}: {', '.join(parts)}>"

    def explain(self, direction: Direction | DirectionName) -> Explanation | None:
        """All fields of one message, with offsets; None if the message or its API is unknown.

        `direction`: "request" or "response", or a `Direction`.
        """
        direction = _direction(direction)
        if self.api_key is None or self.api_version is None:
            return None
        if direction == Direction.REQUEST:
            return None if self.request_frame is None else explain_request(self.request_frame)
        if self.response_frame is None:
            return None
        return explain_response(self.response_frame, self.api_key, self.api_version)

    def unfold(
        self, direction: Direction | DirectionName, *, decode: Decode | None = None,
        explanation: Explanation | None = None,
    ) -> Explanation | None:  # fmt: skip
        """As `explain`, with the structures inside fields of bytes, such as records and tokens.

        `decode`: a function from the id of a schema and the payload of a record's key or value to
        text; None if it cannot. `explanation`: the result of `explain`, if it is known.
        """
        direction = _direction(direction)
        known = MessageContext(self.sasl_mechanism, self.request_frame, self.topic_names, decode)
        if self.api == SASL_TOKEN:
            frame = self.frame(direction)
            return None if frame is None else explain_token(frame, known)
        explanation = explanation or self.explain(direction)
        return None if explanation is None else unfold(explanation, known)


def _direction(given: Direction | str) -> Direction:
    names = {each.name.lower(): each for each in Direction}
    if isinstance(given, Direction):
        return given
    if given not in names:
        raise DissectorError(f"direction {given!r} is neither {' nor '.join(names)}")
    return names[given]


_NO_COLUMNS = ("sasl_mechanism", "topic_names")
_OPTIONAL = ("request_sequence", "response_sequence")


def as_exchanges(
    batch: pa.RecordBatch,
    mechanisms: Mapping[int, str] = MappingProxyType({}),
    topic_names: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Exchange]:
    """The rows of a batch with the columns of an `Exchange`.

    `mechanisms`: SASL mechanism by connection_id. `topic_names`: topic names by id.
    """
    columns: list[list[Any]] = []
    for each in fields(Exchange):
        if each.name in _OPTIONAL and each.name not in batch.schema.names:
            columns.append([None] * len(batch))
        elif each.name not in _NO_COLUMNS:
            column = batch.column(each.name)
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.int64())
            columns.append(column.to_pylist())
    connections = batch.column("connection_id").to_pylist()
    columns.append([mechanisms.get(connection) for connection in connections])
    columns.append([topic_names] * len(batch))
    return (Exchange(*row) for row in zip(*columns, strict=True))

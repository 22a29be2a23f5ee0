"""One exchange as an object: a row of the `exchanges` table, with the bytes of its messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import pyarrow as pa

from dissector.protocol.explain import Explanation
from dissector.protocol.message import (
    Message,
    decode_request,
    decode_response,
    explain_request,
    explain_response,
)
from dissector.protocol.notation import Direction


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request with its response. Columns as in `tables.EXCHANGES`; times in ns; None is null."""

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
    topics: list[str] | None
    partition_count: int | None
    record_count: int | None
    record_bytes: int | None
    group_id: str | None
    member_id: str | None
    transactional_id: str | None
    request_frame: bytes | None
    """The request without its 4-byte size, as far as it is in the capture."""
    response_frame: bytes | None

    @property
    def request(self) -> Message | None:
        """The request, decoded; None where there is none. Raises DecodeError, UnknownVersion."""
        if self.request_frame is None or self.api_key is None:
            return None
        return decode_request(self.request_frame)

    @property
    def response(self) -> Message | None:
        """The response, decoded; None where it, or its request, is not there. Raises as above."""
        if self.response_frame is None or self.api_key is None or self.api_version is None:
            return None
        return decode_response(self.response_frame, self.api_key, self.api_version)

    def explain(self, direction: Direction) -> Explanation | None:
        """Every field of one message, with offsets; None where it cannot be told what it is."""
        if self.api_key is None or self.api_version is None:
            return None
        if direction == Direction.REQUEST:
            return None if self.request_frame is None else explain_request(self.request_frame)
        if self.response_frame is None:
            return None
        return explain_response(self.response_frame, self.api_key, self.api_version)


def as_exchanges(batch: pa.RecordBatch) -> Iterator[Exchange]:
    """The rows of a batch that has the columns of an `Exchange`."""
    columns = []
    for field in fields(Exchange):
        column = batch.column(field.name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns.append(column.to_pylist())
    return (Exchange(*row) for row in zip(*columns, strict=True))

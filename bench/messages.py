"""`python -m bench.messages`: decoded messages per second, compared with the codecs of clients.

The messages are the small requests and responses of a recording that all decoders know, repeated.
Each is read to its last byte. Clients make an object of each message. This project decodes in two
ways: one message to a dict (`decode_request`, `decode_response`, `show`), and all messages of a
kind to columns (for tables), which keep the fields with a role and skip the others. All decoders
run in one process on one core, in turn; the best of several rounds counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import numpy as np
from kafka.protocol.api_message import ApiMessage
from kio.index import UnknownEntity, load_payload_module
from kio.serial import entity_reader
from kio.static.constants import EntityType

import dissector
from bench.measure import best_rates
from bench.report import table
from bench.suite import CAPTURES
from dissector.exchanges.decoded_fields import Messages, decode_fields, flat
from dissector.exchanges.wanted_roles import REQUEST_ROLES, RESPONSE_ROLES
from dissector.protocol.notation import Direction

RECORDINGS = {
    "chatter": CAPTURES / "chatter-mock.pcap.zst",
    "groups": CAPTURES / "kafka-4-group-consumer.pcap.zst",
}
COUNT = 20_000
"""Messages per load."""
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """One message, and the offset of its body."""

    frame: bytes
    direction: Direction
    api_key: int
    api_version: int
    body: int


Decoder = Callable[[Sequence[Sample]], int]
"""Returns the number of messages."""


def samples(recording: Path) -> Iterator[Sample]:
    """The messages of a recording that all decoders can read."""
    for exchange in dissector.open_capture(recording).exchanges():
        key, number = exchange.api_key, exchange.api_version
        if exchange.status != "answered" or key is None or number is None:
            continue
        for frame, direction in (
            (exchange.request_frame, Direction.REQUEST),
            (exchange.response_frame, Direction.RESPONSE),
        ):
            assert frame
            sample = Sample(frame, direction, key, number, 0)
            try:
                _, body = _kio(sample)[0](frame, 0)
                sample = Sample(frame, direction, key, number, body)
                for decode in DECODERS.values():
                    decode([sample])
            except (UnknownEntity, LookupError, ValueError):  # too new for a client
                continue
            yield sample


def _kio(sample: Sample) -> tuple[Any, Any]:
    """kio's readers for the header and body of a message."""
    kind = EntityType.request if sample.direction is Direction.REQUEST else EntityType.response
    readers = _KIO.get((kind, sample.api_key, sample.api_version))
    if readers is None:
        module = load_payload_module(sample.api_key, sample.api_version, kind)
        (entity,) = (
            member
            for member in vars(module).values()
            if getattr(member, "__type__", None) is kind and hasattr(member, "__header_schema__")
        )
        readers = entity_reader(entity.__header_schema__), entity_reader(entity)
        _KIO[kind, sample.api_key, sample.api_version] = readers
    return readers


_KIO: dict[tuple[EntityType, int, int], tuple[Any, Any]] = {}
_KAFKA_PYTHON: dict[tuple[int, bool], Any] = {
    (each.API_KEY, each.is_request()): each
    for module in (
        kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata,
        kafka.protocol.producer,
    )
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, ApiMessage) and each.API_KEY is not None
}  # fmt: skip


def with_kio(messages: Sequence[Sample]) -> int:
    """Decode to kio's data classes."""
    for sample in messages:
        header, body = _kio(sample)
        _, at = header(sample.frame, 0)
        body(sample.frame, at)
    return len(messages)


def with_kafka_python(messages: Sequence[Sample]) -> int:
    """Decode to kafka-python's objects."""
    for sample in messages:
        message = _KAFKA_PYTHON[sample.api_key, sample.direction is Direction.REQUEST]
        message.decode(sample.frame, version=sample.api_version, header=True)
    return len(messages)


def to_dicts(messages: Sequence[Sample]) -> int:
    for sample in messages:
        if sample.direction is Direction.REQUEST:
            dissector.decode_request(sample.frame)
        else:
            dissector.decode_response(sample.frame, sample.api_key, sample.api_version)
    return len(messages)


def to_columns(messages: Sequence[Sample]) -> int:
    for direction, roles in (
        (Direction.REQUEST, REQUEST_ROLES),
        (Direction.RESPONSE, RESPONSE_ROLES),
    ):
        chosen = [sample for sample in messages if sample.direction is direction]
        space, borders = flat([sample.frame for sample in chosen])
        body = np.array([sample.body for sample in chosen], np.int64)
        decoded = decode_fields(
            Messages(
                direction,
                np.array([sample.api_key for sample in chosen], np.int64),
                np.array([sample.api_version for sample in chosen], np.int64),
                [space],
                np.zeros(len(chosen), np.int64),
                borders[:-1] + body,
                borders[1:],
            ),
            roles,
            np.ones(len(chosen), np.bool_),
        )
        assert decoded.good.all()
    return len(messages)


DECODERS: dict[str, Decoder] = {
    "kafka-dissector, columns": to_columns,
    "kafka-dissector, dicts": to_dicts,
    "kio, objects": with_kio,
    "kafka-python, objects": with_kafka_python,
}


def main() -> None:
    """Print a Markdown table of messages per second."""
    rows = []
    for load, recording in RECORDINGS.items():
        recorded = list(samples(recording))
        messages = (recorded * (COUNT // len(recorded) + 1))[:COUNT]
        size = sum(len(sample.frame) for sample in messages) / len(messages)
        speeds = best_rates(DECODERS, messages, ROUNDS).values()
        rows.append([load, f"{size:,.0f} B", *(f"{speed:,.0f}" for speed in speeds)])
    print(
        f"Messages per second on one core; kio {version('kio')}, "
        f"kafka-python {version('kafka-python')}.\n"
    )
    print(table(["messages of", "size", *DECODERS], rows))


if __name__ == "__main__":
    main()

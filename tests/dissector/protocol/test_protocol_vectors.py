"""Messages of other implementations, which `tests/data/README.md` lists."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dissector import decode_request, decode_response
from dissector.protocol.explain import Explained, Explanation
from dissector.protocol.message import Message, explain_request, explain_response

DATA = Path(__file__).parents[2] / "data" / "protocol_vectors.jsonl.gz"

with gzip.open(DATA, "rt", encoding="utf-8") as lines:
    VECTORS = [json.loads(line) for line in lines]


def name(vector: dict[str, Any]) -> str:
    return f"{vector['api_key']}-{vector['direction']}-{vector['version']}"


def decode(vector: dict[str, Any], frame: bytes) -> Message:
    if vector["direction"] == "request":
        return decode_request(frame)
    return decode_response(frame, vector["api_key"], vector["version"])


def explain(vector: dict[str, Any], frame: bytes) -> Explanation:
    if vector["direction"] == "request":
        return explain_request(frame)
    return explain_response(frame, vector["api_key"], vector["version"])


def plain(value: Any) -> Any:
    """A body in the vectors' own notation."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


EACH_API = pytest.mark.parametrize("api_key", sorted({each["api_key"] for each in VECTORS}))


def vectors(api_key: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The vectors of an API, and their frames."""
    for vector in VECTORS:
        if vector["api_key"] == api_key:
            yield vector, bytes.fromhex(vector["frame"])


@EACH_API
def test_decoded_as_encoded(api_key: int) -> None:
    for vector, frame in vectors(api_key):
        message = decode(vector, frame)
        assert (message.api_key, message.api_version) == (api_key, vector["version"])
        assert message.correlation_id == vector["correlation_id"]
        assert message.client_id == vector.get("client_id")
        assert plain(message.body) == vector["body"], name(vector)


@EACH_API
def test_explained_as_decoded(api_key: int) -> None:
    for vector, frame in vectors(api_key):
        explanation = explain(vector, frame)
        assert explanation.error is None, name(vector)
        assert explanation.end == len(frame)
        head, body = values(explanation.events)
        assert head["correlation_id"] == vector["correlation_id"]
        assert head.get("client_id") == vector.get("client_id")
        assert plain(body) == vector["body"], name(vector)


def values(events: list[Explained]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and body, put together from events alone."""
    header: dict[str, Any] = {}
    body: dict[str, Any] = {}
    open_at: list[Any] = [body]
    for event in events:
        value = event.value
        if event.type == "tags" or event.name.startswith("tag "):
            continue
        if event.path.startswith("header."):
            header[event.name] = value
            continue
        if event.type.startswith(("[", "{")) and value is not None:
            value = [] if event.type.startswith("[") else {}
        del open_at[event.depth + 1 :]
        into = open_at[-1]
        if isinstance(into, list):
            assert event.name == f"[{len(into)}]"
            into.append(value)
        else:
            into[event.name] = value
        open_at.append(value)
    return header, body

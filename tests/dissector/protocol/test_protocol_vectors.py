"""Messages of other implementations, which `tests/data/README.md` lists."""

from __future__ import annotations

from typing import Any

import pytest

from dissector.protocol.explain import Explained, Explanation
from dissector.protocol.message import explain_request, explain_response
from tests.vectors import decoded, plain, vectors

VECTORS = vectors("protocol")


def name(vector: dict[str, Any]) -> str:
    return f"{vector['api_key']}-{vector['direction']}-{vector['version']}"


def explain(vector: dict[str, Any], frame: bytes) -> Explanation:
    if vector["direction"] == "request":
        return explain_request(frame)
    return explain_response(frame, vector["api_key"], vector["version"])


EACH_API = pytest.mark.parametrize("api_key", sorted({each["api_key"] for each in VECTORS}))


def of_api(api_key: int) -> list[dict[str, Any]]:
    """The vectors of an API."""
    return [vector for vector in VECTORS if vector["api_key"] == api_key]


@EACH_API
def test_decoded_as_encoded(api_key: int) -> None:
    for vector in of_api(api_key):
        message = decoded(vector)
        assert (message.api_key, message.api_version) == (api_key, vector["version"])
        assert message.correlation_id == vector["correlation_id"]
        assert message.client_id == vector.get("client_id")
        assert plain(message.body) == vector["body"], name(vector)


@EACH_API
def test_explained_as_decoded(api_key: int) -> None:
    for vector in of_api(api_key):
        frame = bytes.fromhex(vector["frame"])
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

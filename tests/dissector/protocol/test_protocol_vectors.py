"""Random messages that Kafka's own classes encoded: `tools/record/kafka/messages.py`.

Nothing in the vectors is our own output.
"""

from __future__ import annotations

from typing import Any

import pytest

from dissector.protocol.explain import Explained, Explanation
from dissector.protocol.message import explain_request, explain_response
from tests.dissector.protocol.kafka_schemas import RENAMED
from tests.vectors import decoded, plain, vectors

# KRaft is one word in the names of a Java Schema, two in the snake_case of isKRaft...
NAMES = {
    **RENAMED,
    "UpdateRaftVoter": {"kraft_version_feature": "k_raft_version_feature"},
    "LeaderAndIsr": {"is_kraft_controller": "is_k_raft_controller"},
    "StopReplica": {"is_kraft_controller": "is_k_raft_controller"},
    "UpdateMetadata": {"is_kraft_controller": "is_k_raft_controller"},
}
VECTORS = vectors("kafka_clients")
EACH_API = pytest.mark.parametrize("api", dict.fromkeys(vector["api"] for vector in VECTORS))


def of_api(api: str) -> list[dict[str, Any]]:
    """The vectors of an API."""
    return [vector for vector in VECTORS if vector["api"] == api]


def renamed(api: str, body: dict[str, Any]) -> Any:
    """A body in the notation of the vectors, with one name for each field."""
    names = NAMES.get(api, {})
    return plain(body, lambda name: names.get(name, name))


def explain(vector: dict[str, Any], frame: bytes) -> Explanation:
    if vector["direction"] == "request":
        return explain_request(frame)
    return explain_response(frame, vector["api_key"], vector["version"])


@EACH_API
def test_decoded_as_encoded(api: str) -> None:
    for vector in of_api(api):
        message, expected = decoded(vector), vector["expect"]
        read = (message.api_key, message.api_version, message.correlation_id, message.client_id)
        sent = (vector["api_key"], vector["version"], expected["correlation_id"])
        assert read == (*sent, expected.get("client_id"))
        assert renamed(api, message.body) == renamed(api, expected["body"]), read


@EACH_API
def test_explained_as_encoded(api: str) -> None:
    for vector in of_api(api):
        frame, expected = bytes.fromhex(vector["frame"]), vector["expect"]
        explanation = explain(vector, frame)
        assert explanation.error is None, vector
        assert explanation.end == len(frame)
        head, body = values(explanation.events)
        assert head["correlation_id"] == expected["correlation_id"]
        assert head.get("client_id") == expected.get("client_id")
        assert renamed(api, body) == renamed(api, expected["body"]), vector


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

"""The decoders against kafka-clients' own classes, on a random message of every version.

The vectors are made by `tools/record/kafka/messages.py`; nothing in them is our own output.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dissector import Message, decode_request, decode_response
from tests.dissector.protocol.kafka_schemas import RENAMED

FILE = Path(__file__).parents[1] / "data" / "kafka_clients_vectors.jsonl.gz"

# KRaft is one word in the names of a Java Schema, two in the snake_case of isKRaft...
NAMES = {
    **RENAMED,
    "UpdateRaftVoter": {"kraft_version_feature": "k_raft_version_feature"},
    "LeaderAndIsr": {"is_kraft_controller": "is_k_raft_controller"},
    "StopReplica": {"is_kraft_controller": "is_k_raft_controller"},
    "UpdateMetadata": {"is_kraft_controller": "is_k_raft_controller"},
}


def load() -> list[dict[str, Any]]:
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def plain(value: Any, names: Mapping[str, str]) -> Any:
    """A decoded body, or an expected one, in the same terms."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"hex": bytes(value).hex()}
    if isinstance(value, dict):
        return {names.get(key, key): plain(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, names) for item in value]
    return value


def decode(vector: dict[str, Any]) -> Message:
    frame = bytes.fromhex(vector["frame"])
    if vector["direction"] == "request":
        return decode_request(frame)
    return decode_response(frame, vector["api_key"], vector["version"])


VECTORS = load()


@pytest.mark.parametrize("api", dict.fromkeys(vector["api"] for vector in VECTORS))
def test_messages_of_kafkas_own_classes(api: str) -> None:
    names = NAMES.get(api, {})
    for vector in (each for each in VECTORS if each["api"] == api):
        message, expected = decode(vector), vector["expect"]
        read = (message.api_key, message.api_version, message.correlation_id, message.client_id)
        sent = (vector["api_key"], vector["version"], expected["correlation_id"])
        assert read == (*sent, expected.get("client_id"))
        assert plain(message.body, names) == plain(expected["body"], names), read

"""The decoders against kafka-clients' own classes, on a random message of every version.

The vectors are made by `tools/record/kafka/messages.py`; nothing in them is our own output.
"""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize("api", dict.fromkeys(vector["api"] for vector in VECTORS))
def test_messages_of_kafkas_own_classes(api: str) -> None:
    names = NAMES.get(api, {})

    def rename(name: str) -> str:
        return names.get(name, name)

    for vector in (each for each in VECTORS if each["api"] == api):
        message, expected = decoded(vector), vector["expect"]
        read = (message.api_key, message.api_version, message.correlation_id, message.client_id)
        sent = (vector["api_key"], vector["version"], expected["correlation_id"])
        assert read == (*sent, expected.get("client_id"))
        assert plain(message.body, rename) == plain(expected["body"], rename), read

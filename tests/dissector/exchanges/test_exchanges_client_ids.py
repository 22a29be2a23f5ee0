"""Client ids whose length is damaged: no secret of the body is in them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dissector.capture import open_capture
from tests.dissector.streams.dialogue import Dialogue, request, response
from tests.kafka_bytes import text

SASL_AUTHENTICATE, METADATA = 36, 3
PASSWORD = b"\0alice\0alice-secret"


def damaged(api_key: int, body: bytes, extra: int) -> bytes:
    """A request whose client id has so many bytes of the body."""
    whole = request(api_key, 0, 7, body, client="app")
    return whole[:12] + struct.pack(">h", 3 + extra) + whole[14:]


def client_ids(folder: Path, sent: bytes) -> list[str | None]:
    dialogue, connection = Dialogue.connected()
    connection.exchange(request(METADATA, 0, 6, bytes(4)), response(6, bytes(8)))
    connection.exchange(sent, response(7, struct.pack(">hhi", 0, -1, 0)))
    connection.exchange(request(METADATA, 0, 8, bytes(4)), response(8, bytes(8)))
    rows = open_capture(dialogue.written(folder / "capture.pcap"))
    return rows.tables(["exchanges"])["exchanges"]["client_id"].to_pylist()


@pytest.mark.parametrize("extra", [1, 4, 12, 20, 4 + len(PASSWORD)])
def test_a_client_id_that_damage_extended_over_a_token(tmp_path: Path, extra: int) -> None:
    body = text(PASSWORD, ">i")
    assert client_ids(tmp_path, damaged(SASL_AUTHENTICATE, body, extra)) == ["me", "app…", "me"]


def test_a_client_id_with_control_characters(tmp_path: Path) -> None:
    """It is kept whole if the API has no secrets."""
    sent = request(METADATA, 0, 7, bytes(4), client="a\tb")
    assert client_ids(tmp_path, sent) == ["me", "a\tb", "me"]

"""Client ids of any bytes, and surplus bytes, neither hide a connection nor prevent joining it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import dissector
from analysis.cli import main
from tests.dissector.streams.dialogue import Dialogue, framed, ipv4, pcap, response

BROKER = ipv4("10.0.0.9")
COUNT = 12
SEGMENT = 1448

METADATA_1 = bytes.fromhex("00000000 ffffffff 00000000")
"""A response without brokers and topics."""
REQUESTS = {
    "Metadata v1": (3, 1, b"", bytes.fromhex("00000001 0006") + b"orders", METADATA_1),
    "Metadata v13": (
        3, 13, b"\0", bytes.fromhex("00 00 00 00"),
        bytes.fromhex("00 00000000 01 00 ffffffff 01 0000 00"),
    ),
    "ApiVersions v0": (18, 0, b"", b"", bytes.fromhex("0000 00000000")),
}  # fmt: skip
"""Key, version, tagged section of the header, body; and the body of a response, its tagged section
included."""


def capture(
    tmp_path: Path, api: str, client_id: bytes, *, surplus: int = 0, port: int = 29092,
    handshake: bool = True, skip: int = 0,
) -> Path:  # fmt: skip
    """A connection with `COUNT` exchanges. `skip`: its first packets that are not captured."""
    key, version, tags, body, answer = REQUESTS[api]
    talk = Dialogue()
    connection = talk.connect(broker=(BROKER, port), handshake=handshake)
    for number in range(1, COUNT + 1):
        head = struct.pack(">hhih", key, version, number, len(client_id)) + client_id + tags
        message = framed(head + body + bytes(surplus))
        connection.client_segments(message, SEGMENT)
        connection.broker(response(number, answer))
    connection.fin()
    path = tmp_path / "made.pcap"
    path.write_bytes(pcap(talk.packets[skip:]))
    return path


def read(path: Path, **options: Any) -> dict[str, list[dict[str, Any]]]:
    return {
        name: table.to_pylist()
        for name, table in dissector.open_capture(path, **options).tables().items()
    }


IDS = {
    "carriage return": b"app\r",
    "terminal": b"\x1b[2J\x1b]0;owned\x07",
    "one byte": b"\x01",
    "zeros": bytes(9),
    "DEL": b"a\x7f",
    "Latin-1": b"caf\xe9-\xfc",
    "no text": b"\xff\xfe\x80",
    "long": b"service-" * 700,
    "longest": b"x" * 32_767,
    "long, with control characters": b"a\tb\n" * 2000,
}
PLACES = {
    "from the SYN": {},
    "from the SYN, port 9092": {"port": 9092},
    "midway": {"handshake": False},
    "midway, port 9092": {"handshake": False, "port": 9092},
}


@pytest.mark.parametrize("client_id", IDS.values(), ids=IDS)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("api", ["Metadata v1", "Metadata v13"])
def test_no_client_id_hides_a_connection(
    tmp_path: Path, api: str, place: dict[str, Any], client_id: bytes
) -> None:
    tables = read(capture(tmp_path, api, client_id, **place))
    assert [row["status"] for row in tables["exchanges"]] == ["answered"] * COUNT
    text = client_id.decode(errors="backslashreplace")
    assert {row["client_id"] for row in tables["exchanges"]} == {text}
    assert {row["protocol"] for row in tables["connections"]} == {"kafka"}
    assert tables["problems"] == []


@pytest.mark.parametrize("surplus", [1, 3, 4, 15, 100])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("api", REQUESTS)
def test_surplus_bytes_do_not_hide_a_connection(
    tmp_path: Path, api: str, place: dict[str, Any], surplus: int
) -> None:
    tables = read(capture(tmp_path, api, b"rdkafka", surplus=surplus, **place))
    assert [row["status"] for row in tables["exchanges"]] == ["answered"] * COUNT
    assert {row["protocol"] for row in tables["connections"]} == {"kafka"}
    assert {(row["kind"], row["bytes"]) for row in tables["problems"]} == {
        ("surplus_bytes", surplus)
    }
    assert len(tables["problems"]) == COUNT


def test_control_characters_and_surplus_bytes(tmp_path: Path) -> None:
    tables = read(capture(tmp_path, "Metadata v1", b"app\r", surplus=4, handshake=False))
    assert [row["status"] for row in tables["exchanges"]] == ["answered"] * COUNT


@pytest.mark.parametrize("client_id", IDS.values(), ids=IDS)
@pytest.mark.parametrize(
    "command",
    [["summary"], ["show", "--limit", "1"], ["export", "--format", "jsonl"], ["sniff"]],
    ids=" ".join,
)
def test_output_escapes_client_ids_and_cuts_long_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], client_id: bytes, command: list[str]
) -> None:
    path = capture(tmp_path, "Metadata v1", client_id)
    assert main([*command, str(path)]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert all(line.isprintable() for line in lines)
    assert command[0] == "export" or max(map(len, lines)) < 1000

"""Each connection of a `--port` is Kafka: other data is one problem with the reason."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import dissector
from dissector.errors import DissectorError
from tests.captures import recorded
from tests.dissector.streams.dialogue import Dialogue, framed, ipv4, pcap

OTHERS = sorted(path.name for path in (recorded.CAPTURES / "other").iterdir())
BROKER = ipv4("10.0.0.9")
PORT = 8080
HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(194)
"""The beginning of a TLS record with a ClientHello."""
SERVER_HELLO = bytes.fromhex("160303007a020000760303")


def tables(path: Path, packets: list[Any], **options: Any) -> dict[str, list[dict[str, Any]]]:
    path.write_bytes(pcap(packets))
    read = dissector.open_capture(path, **options).tables()
    return {name: table.to_pylist() for name, table in read.items()}


def connection(talk: Dialogue, client: bytes, broker: bytes, **options: Any) -> None:
    flow = talk.connect(broker=(BROKER, PORT), **options)
    for _ in range(3):
        if client:
            flow.client(client)
        if broker:
            flow.broker(broker)
    flow.fin()


def heartbeat(group: bytes) -> bytes:
    head = struct.pack(">hhih", 12, 0, 1, 2) + b"me" + struct.pack(">h", len(group)) + group
    return framed(head + bytes(4) + struct.pack(">h", 900) + b"too short")


CASES = {
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", "47 45 54 20 ('GET ')"),
    "TLS": (HELLO, SERVER_HELLO, "it is TLS, and no key log decrypts it"),
    "zeros": (bytes(400), bytes(400), "00 00 00 00"),
    "noise": (b"\xfa\xce" * 200, b"\x9e\x11" * 100, "fa ce fa ce"),
    "SOCKS": (bytes.fromhex("05010005010001c00002012384"), bytes.fromhex("05ff"), "address a"),
    "CONNECT": (b"CONNECT a:1 HTTP/1.1\r\n\r\n", b"HTTP/1.1 407 No\r\n\r\n", "address a"),
    "little": (b"\0", b"", "the client sent 3 bytes"),
    "server first": (b"", b"220 mail.example ESMTP\r\n", "the client sent 0 bytes"),
    "large": (struct.pack(">i", 90_000_000) + b"\xff" * 600, b"", "announces 90000000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize(("client", "broker", "why"), CASES.values(), ids=CASES)
def test_other_protocols_on_a_named_port_are_problems(
    tmp_path: Path, client: bytes, broker: bytes, why: str
) -> None:
    talk = Dialogue()
    connection(talk, client, broker)
    read = tables(tmp_path / "a.pcap", talk.packets, ports=[PORT])
    assert read["exchanges"] == []
    (row,) = [row for row in read["problems"] if row["kind"] in ("not_kafka", "tls_no_keys")]
    assert row["connection_id"] == 0
    assert row["bytes"] == 3 * len(client + broker)
    assert f"port {PORT}: " in row["detail"]
    assert why in row["detail"]
    assert row["detail"].isprintable()


def test_one_row_for_each_connection(tmp_path: Path) -> None:
    talk = Dialogue()
    for _ in range(5):
        for client, broker, _ in CASES.values():
            connection(talk, client, broker)
    count = 5 * len(CASES)
    rows = tables(tmp_path / "a.pcap", talk.packets, ports=[PORT])["problems"]
    named = [row["connection_id"] for row in rows if row["kind"] in ("not_kafka", "tls_no_keys")]
    assert named == list(range(count))


def test_a_connection_that_began_earlier(tmp_path: Path) -> None:
    talk = Dialogue()
    connection(talk, b"secret-password" * 9, b"x" * 50, handshake=False)
    (row,) = tables(tmp_path / "a.pcap", talk.packets, ports=[PORT])["problems"]
    assert (row["kind"], row["connection_id"]) == ("not_kafka", 0)
    assert "its beginning is not in the capture" in row["detail"]
    assert "secr" not in row["detail"]


def test_the_packets_of_a_server_alone(tmp_path: Path) -> None:
    talk = Dialogue()
    connection(talk, b"secret-password" * 9, b"x" * 50)
    packets = [each for each in talk.packets if each.source == (BROKER, PORT)]
    (row,) = tables(tmp_path / "a.pcap", packets, ports=[PORT])["problems"]
    assert "the packets of one end are not in the capture" in row["detail"]


def test_an_unknown_api_on_a_named_port_is_an_undecoded_exchange(tmp_path: Path) -> None:
    talk = Dialogue()
    connection(talk, framed(struct.pack(">hhih", 999, 7, 1, 6) + b"client"), b"")
    read = tables(tmp_path / "a.pcap", talk.packets, ports=[PORT])
    assert {row["api_key"] for row in read["exchanges"]} == {999}
    assert {row["kind"] for row in read["problems"]} == {"unknown_version"}


def test_an_undecodable_request_has_the_offset_of_the_error(tmp_path: Path) -> None:
    talk = Dialogue()
    connection(talk, heartbeat(b"g"), b"")
    rows = tables(tmp_path / "a.pcap", talk.packets, ports=[PORT])["problems"]
    assert any("member_id" in row["detail"] for row in rows)


def test_neither_empty_connections_nor_other_ports_are_reported(tmp_path: Path) -> None:
    talk = Dialogue()
    connection(talk, b"", b"")
    talk.connect(broker=(BROKER, 80)).client(b"GET / HTTP/1.1\r\n\r\n")
    assert tables(tmp_path / "a.pcap", talk.packets, ports=[PORT])["problems"] == []
    connection(talk, *CASES["HTTP"][:2])
    assert tables(tmp_path / "a.pcap", talk.packets)["problems"] == []


@pytest.mark.parametrize("name", OTHERS)
def test_other_protocols_on_a_named_port(name: str) -> None:
    packets = recorded.read(f"other/{name}")
    ports = [int.from_bytes(packets[0].tcp[2:4], "big")]
    read = dissector.open_capture(recorded.CAPTURES / "other" / name, ports=ports).tables()
    rows = read["problems"].to_pylist()
    named = [row["connection_id"] for row in rows if row["kind"] in ("not_kafka", "tls_no_keys")]
    expected = [
        row["connection_id"]
        for row in read["connections"].to_pylist()
        if {row["client_port"], row["broker_port"]} & set(ports)
        and row["client_bytes"] + row["broker_bytes"]
    ]
    assert expected
    assert named == expected


def test_kafka_on_a_named_port_is_not_a_problem() -> None:
    path = recorded.CAPTURES / "kafka-4-java.pcap.zst"
    read = dissector.open_capture(path, ports=[9092, 19092]).tables(["problems"])
    assert read["problems"].num_rows == 0


def test_tls_without_its_keys() -> None:
    path = recorded.CAPTURES / "kafka-4-tls.pcap.zst"
    keylog = recorded.CAPTURES / "kafka-4-tls.keys.log"
    read = dissector.open_capture(path, ports=[9092]).tables(["problems", "connections"])
    rows, protocols = read["problems"].to_pylist(), read["connections"]["protocol"].to_pylist()
    assert {row["kind"] for row in rows} == {"tls_no_keys"}
    assert len(rows) == protocols.count("tls") > 0
    with_keys = dissector.open_capture(path, ports=[9092], keylog=keylog).tables(["problems"])
    assert with_keys["problems"].num_rows == 0


@pytest.mark.parametrize("has_lost_record", [False, True])
def test_decrypted_bytes_that_are_not_kafka(tmp_path: Path, *, has_lost_record: bool) -> None:
    """The key log is right, so it is not the reason."""
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    from tests.dissector.tls.tls_made import CLIENT, SERVER, contexts, talk

    messages = 3 * [(CLIENT, CASES["HTTP"][0]), (SERVER, CASES["HTTP"][1])]
    made = talk(tmp_path, contexts(tmp_path, "TLSv1_3"), messages)
    dialogue, flow = Dialogue.connected(broker=(BROKER, PORT))
    for number, (end, data) in enumerate(made.wire):
        flow.packet(end, data, sent=not has_lost_record or number != len(made.wire) - 3)
        dialogue.wait(2000)
    flow.fin()
    options = {"ports": [PORT], "keylog": tmp_path / "keys.log"}
    rows = tables(tmp_path / "a.pcap", dialogue.packets, **options)["problems"]
    (row,) = [row for row in rows if row["kind"] in ("not_kafka", "tls_no_keys")]
    reason = "no Kafka was recognised in its decrypted bytes"
    assert row["detail"] == f"connection to port {PORT}: {reason}"


@pytest.mark.parametrize("port", [-1, 0, 65_536])
def test_a_number_that_is_not_a_port(port: int) -> None:
    capture = recorded.CAPTURES / "kafka-python-mock.pcap"
    with pytest.raises(DissectorError, match=f"^{port} is not a port: choose from 1 to 65535$"):
        dissector.open_capture(capture, ports=[9092, port]).tables(["exchanges"])

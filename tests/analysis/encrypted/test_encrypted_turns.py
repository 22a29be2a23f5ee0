"""Turns of encrypted connections."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from analysis.encrypted.turns import SCHEMA, Turns
from analysis.sql.query import row_dicts
from dissector.capture import open_capture
from dissector.packets import open_packets
from dissector.packets.block import FIN
from dissector.packets.files import BLOCK_BYTES
from dissector.pipeline import Pipeline
from tests.analysis.commands import ROOT
from tests.analysis.cutting.test_cutting_packets import written
from tests.dissector.streams.dialogue import Connection, Dialogue
from tests.dissector.streams.test_streams_proxy_handshakes import HANDSHAKES, send

RECORDING: Final = ROOT / "captures" / "kafka-4-tls.pcap.zst"
KEYS: Final = ROOT / "captures" / "kafka-4-tls.keys.log"
CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA = range(20, 24)
BLOCK_SIZES: Final = (BLOCK_BYTES, 1 << 12)


def turns_of(path: Path, block_bytes: int = BLOCK_BYTES) -> pa.Table:
    """The turns of clients, with their connection_id and latency_ms."""
    batches: list[pa.RecordBatch] = []
    turns = Turns(batches.append)
    pipeline = Pipeline(open_packets([str(path)], block_bytes=block_bytes))
    pipeline.observe_packets(turns.observe)
    table = pa.Table.from_batches(batches, SCHEMA).join(
        turns.clients(), "stream", join_type="inner"
    )
    latency = pc.subtract(table["response_time"], table["request_time"]).cast(pa.int64())
    return table.append_column("latency_ms", pc.divide(latency, 1e6)).sort_by("request_time")


def tls(content: int, size: int, begin: bytes = b"") -> bytes:
    """A TLS record whose body has so many bytes. `begin`: its first bytes."""
    return struct.pack(">BHH", content, 0x303, size) + begin.ljust(size, b"\0")


@pytest.fixture
def dialogue() -> Dialogue:
    return Dialogue()


@pytest.fixture
def connection(dialogue: Dialogue) -> Connection:
    """A connection behind a handshake of TLS 1.3 (RFC 8446, section 2)."""
    connection = dialogue.connect()
    connection.client(tls(HANDSHAKE, 300))
    hello = tls(HANDSHAKE, 90, b"\2")
    connection.broker(hello + tls(CHANGE_CIPHER_SPEC, 1) + tls(APPLICATION_DATA, 900))
    connection.client(tls(CHANGE_CIPHER_SPEC, 1))
    connection.client(tls(APPLICATION_DATA, 69))
    connection.broker(tls(APPLICATION_DATA, 200))  # a ticket
    return connection


def latencies(dialogue: Dialogue, folder: Path) -> list[float]:
    """Response times, which do not depend on the size of blocks."""
    path = written(dialogue, folder / "a.pcap")
    first, *others = (turns_of(path, size)["latency_ms"].to_pylist() for size in (*BLOCK_SIZES, 99))
    assert others == [first] * len(others)
    return [round(latency, 2) for latency in first]  # times in the file are floats


@pytest.mark.parametrize("block_bytes", BLOCK_SIZES)
def test_turns_are_exchanges_of_the_decrypted_recording(block_bytes: int) -> None:
    with open_capture(RECORDING, keylog=KEYS) as capture:
        exchanges = row_dicts(capture.tables(["exchanges"])["exchanges"])
    with open_capture(RECORDING) as capture:
        rows = row_dicts(capture.tables(["connections"])["connections"])
    encrypted = {row["connection_id"] for row in rows if row["protocol"] == "tls"}
    known = {(row["connection_id"], row["request_packet"]): row for row in exchanges}
    turns = row_dicts(turns_of(RECORDING, block_bytes))
    turns = [turn for turn in turns if turn["connection_id"] in encrypted]
    assert len(turns) > 40
    for turn in turns:
        exchange = known[turn["connection_id"], turn["request_packet"]]
        assert turn["request_time"] == exchange["request_time"]
        if exchange["in_flight"] == 1:
            assert turn["latency_ms"] == exchange["latency_ms"]
        else:
            assert turn["latency_ms"] < exchange["latency_ms"]


def test_a_turn(dialogue: Dialogue, connection: Connection, tmp_path: Path) -> None:
    for size in (1_000, 500):
        connection.client(tls(APPLICATION_DATA, size))
    dialogue.wait(7)
    for size in (100, 200):
        connection.broker(tls(APPLICATION_DATA, size))
    assert latencies(dialogue, tmp_path) == [8.0]
    names = ["connection_id", "capture", "request_packet", "sent_bytes", "received_bytes"]
    (turn,) = turns_of(tmp_path / "a.pcap").select(names).to_pylist()
    assert [*turn.values()] == [0, 0, 10, 1_510, 310]


def test_packets_without_new_bytes_are_no_part_of_a_turn(
    dialogue: Dialogue, connection: Connection, tmp_path: Path
) -> None:
    request = tls(APPLICATION_DATA, 80)
    connection.client(request)
    dialogue.wait(4)
    connection.retransmit(0, request, back=85)
    connection.packet(1)
    connection.retransmit(0, request[-1:], back=1)  # a keep-alive
    connection.retransmit(1, b"\0", back=1)
    connection.broker(tls(APPLICATION_DATA, 100))
    assert latencies(dialogue, tmp_path) == [9.0]


def test_sequence_numbers_wrap(dialogue: Dialogue, tmp_path: Path) -> None:
    connection = dialogue.connect(isn=(2**32 - 100, 2**32 - 50))
    for _ in range(3):
        connection.exchange(tls(APPLICATION_DATA, 60), tls(APPLICATION_DATA, 40))
    assert latencies(dialogue, tmp_path) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("alert", [(ALERT, 26), (APPLICATION_DATA, 19), (APPLICATION_DATA, 35)])
def test_alerts_and_key_updates_are_no_part_of_a_turn(
    dialogue: Dialogue, connection: Connection, tmp_path: Path, alert: tuple[int, int]
) -> None:
    connection.client(tls(APPLICATION_DATA, 80))
    connection.client(tls(APPLICATION_DATA, 22))  # KeyUpdate
    dialogue.wait(10)
    connection.client(tls(*alert))
    connection.packet(0, flags=FIN | 0x10)
    connection.broker(tls(*alert))
    assert latencies(dialogue, tmp_path) == []


def test_a_second_hello_is_part_of_the_handshake(dialogue: Dialogue, tmp_path: Path) -> None:
    connection = dialogue.connect()
    connection.client(tls(HANDSHAKE, 300))
    connection.broker(tls(HANDSHAKE, 80))  # HelloRetryRequest
    connection.client(tls(CHANGE_CIPHER_SPEC, 1) + tls(HANDSHAKE, 330))
    connection.broker(tls(HANDSHAKE, 90) + tls(APPLICATION_DATA, 900))
    assert latencies(dialogue, tmp_path) == []


@pytest.mark.parametrize("has_retry", [False, True])
def test_a_finished_without_change_cipher_spec(
    dialogue: Dialogue, tmp_path: Path, has_retry: bool
) -> None:
    """The client has sent ChangeCipherSpec with its second hello, or sends none."""
    hello = b"\2"
    connection = dialogue.connect()
    connection.client(tls(HANDSHAKE, 300))
    if has_retry:
        connection.broker(tls(HANDSHAKE, 80, hello))  # HelloRetryRequest
        connection.client(tls(CHANGE_CIPHER_SPEC, 1) + tls(HANDSHAKE, 330))
    connection.broker(tls(HANDSHAKE, 90, hello) + tls(APPLICATION_DATA, 900))
    connection.client(tls(APPLICATION_DATA, 69))
    connection.broker(tls(APPLICATION_DATA, 200))  # a ticket
    connection.client(tls(APPLICATION_DATA, 80))
    dialogue.wait(2)
    connection.broker(tls(APPLICATION_DATA, 100))
    assert latencies(dialogue, tmp_path) == [3.0]


def test_a_change_cipher_spec_between_the_packets_of_the_broker(
    dialogue: Dialogue, tmp_path: Path
) -> None:
    """The handshake of Java clients and brokers with TLS 1.3."""
    connection = dialogue.connect()
    connection.client(tls(HANDSHAKE, 975))
    connection.broker(tls(HANDSHAKE, 122, b"\2"))
    connection.client(tls(CHANGE_CIPHER_SPEC, 1))
    connection.broker(tls(CHANGE_CIPHER_SPEC, 1))
    connection.broker(tls(APPLICATION_DATA, 686))
    for size in (93, 125):  # Finished, and the first request
        connection.client(tls(APPLICATION_DATA, size))
    for size in (649, 913):  # a ticket, and the response
        connection.broker(tls(APPLICATION_DATA, size))
    connection.exchange(tls(APPLICATION_DATA, 80), tls(APPLICATION_DATA, 100))
    assert latencies(dialogue, tmp_path) == [1.0]


def send_session(connection: Connection) -> None:
    """A handshake of TLS 1.3, and one exchange."""
    connection.client(tls(HANDSHAKE, 300))
    connection.broker(tls(HANDSHAKE, 90, b"\2") + tls(APPLICATION_DATA, 900))
    connection.client(tls(CHANGE_CIPHER_SPEC, 1) + tls(APPLICATION_DATA, 69))
    connection.broker(tls(APPLICATION_DATA, 200))  # a ticket
    connection.exchange(tls(APPLICATION_DATA, 80), tls(APPLICATION_DATA, 100))


def test_a_client_hello_behind_a_proxy_header(dialogue: Dialogue, tmp_path: Path) -> None:
    connection = dialogue.connect()
    connection.client(b"PROXY TCP4 10.1.1.1 10.1.1.2 5555 9092\r\n")
    send_session(connection)
    assert latencies(dialogue, tmp_path) == [1.0]


@pytest.mark.parametrize("name", HANDSHAKES)
def test_a_handshake_with_a_proxy_is_no_turn(dialogue: Dialogue, tmp_path: Path, name: str) -> None:
    connection = dialogue.connect()
    send(connection, HANDSHAKES[name])
    send_session(connection)
    assert latencies(dialogue, tmp_path) == [1.0]


def test_a_request_behind_a_ticket_of_tls_1_2(dialogue: Dialogue, tmp_path: Path) -> None:
    """The broker's part of the handshake begins with a handshake record, too (RFC 5077)."""
    connection = dialogue.connect()
    connection.client(tls(HANDSHAKE, 300))
    connection.broker(tls(HANDSHAKE, 90, b"\2") + tls(HANDSHAKE, 900, b"\x0b"))
    connection.client(tls(HANDSHAKE, 70) + tls(CHANGE_CIPHER_SPEC, 1) + tls(HANDSHAKE, 40))
    connection.broker(tls(HANDSHAKE, 200, b"\4") + tls(CHANGE_CIPHER_SPEC, 1) + tls(HANDSHAKE, 40))
    connection.exchange(tls(APPLICATION_DATA, 80), tls(APPLICATION_DATA, 100))
    assert latencies(dialogue, tmp_path) == [1.0]


def test_a_request_without_response(
    dialogue: Dialogue, connection: Connection, tmp_path: Path
) -> None:
    connection.client(tls(APPLICATION_DATA, 80))
    connection.fin()
    other = dialogue.connect()
    other.client(tls(HANDSHAKE, 300))
    assert latencies(dialogue, tmp_path) == []


def test_the_client_is_unknown(dialogue: Dialogue, tmp_path: Path) -> None:
    """Neither end has a known port, and the capture begins inside the connection."""
    connection = dialogue.connect(handshake=False, broker=(0xFFFF0A000009, 5000))
    connection.exchange(tls(APPLICATION_DATA, 80), tls(APPLICATION_DATA, 80))
    assert latencies(dialogue, tmp_path) == []

"""Handshakes with a proxy before the first frame.

SOCKS 4 and 4A: openssh.com/txt/socks4.protocol and socks4a.protocol. SOCKS 5: RFC 1928 and RFC
1929. HTTP CONNECT: RFC 9110, section 9.3.6.
"""

from __future__ import annotations

import pytest

import dissector
from dissector.streams.connections.table import KAFKA, TLS
from dissector.streams.proxies.handshakes import INCOMPLETE, REFUTED, client_length, proxy_length
from tests.dissector.streams.dialogue import Connection, Dialogue, dissect, request, response, split

Handshake = tuple[tuple[int, bytes], ...]
"""Segments: the end that sends each, 0 is the client; and its bytes."""

PROXY = (7, 1080)
PASSWORD = b"correct horse"
GREETING = 0, bytes.fromhex("05 01 00")
BOTH_METHODS = 0, bytes.fromhex("05 02 00 02")
IPV4 = 0, bytes.fromhex("05 01 00 01 c0000201 2384")
IPV6 = 0, bytes.fromhex("05 01 00 04 20010db8000000000000000000000001 2384")
NAME = 0, bytes.fromhex("05 01 00 03 09") + b"broker-10" + bytes.fromhex("2384")
LOGIN = 0, b"\x01\x02me" + bytes([len(PASSWORD)]) + PASSWORD
NO_PASSWORD = 1, bytes.fromhex("05 00")
WITH_PASSWORD = 1, bytes.fromhex("05 02")
LOGGED_IN = 1, bytes.fromhex("01 00")
CONNECTED = 1, bytes.fromhex("05 00 00 01 00000000 0000")
CONNECTED_IPV6 = 1, bytes.fromhex("05 00 00 04 00000000000000000000000000000000 0000")
CONNECT = 0, b"CONNECT broker-10:9092 HTTP/1.1\r\nHost: broker-10:9092\r\n\r\n"
BASIC = 0, CONNECT[1][:-2] + b"Proxy-Authorization: Basic bWU6Y29ycmVjdCBob3JzZQ==\r\n\r\n"
ESTABLISHED = 1, b"HTTP/1.1 200 Connection established\r\n\r\n"
ODD = 1, b"HTTP/1.0 200 \r\nContent-Length: 5\r\n\r\n"
UNAUTHORIZED = (
    1,
    (
        b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n"
        b"content-length:  7\r\n\r\nHTTP/1."
    ),
)
CHUNKED = (
    1,
    (
        b"HTTP/1.1 407 Proxy Authentication Required\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'5\r\nHTTP/\r\nA;name="value"\r\n1.1 200 \r\n\r\n0\r\nDate: never\r\n\r\n'
    ),
)
CHUNKED_WITHOUT_TRAILER = 1, CHUNKED[1].replace(b"Date: never\r\n", b"")
IPV4_4 = 0, bytes.fromhex("04 01 2384 c0000201") + b"me\0"
IPV4_4_ANONYMOUS = 0, bytes.fromhex("04 01 2384 c0000201 00")
NAME_4 = 0, bytes.fromhex("04 01 2384 00000001") + b"me\0broker-10\0"
GRANTED_4 = 1, bytes.fromhex("00 5a 2384 c0000201")
HANDSHAKES: dict[str, Handshake] = {
    "socks": (GREETING, NO_PASSWORD, IPV4, CONNECTED),
    "socks ipv6": (BOTH_METHODS, NO_PASSWORD, IPV6, CONNECTED_IPV6),
    "socks name": (GREETING, NO_PASSWORD, NAME, CONNECTED),
    "socks password": (BOTH_METHODS, WITH_PASSWORD, LOGIN, LOGGED_IN, NAME, CONNECTED),
    "socks at once": (GREETING, IPV4, NO_PASSWORD, CONNECTED),
    "socks 4": (IPV4_4, GRANTED_4),
    "socks 4 anonymous": (IPV4_4_ANONYMOUS, GRANTED_4),
    "socks 4a": (NAME_4, GRANTED_4),
    "connect": (CONNECT, ESTABLISHED),
    "connect chunked": (CONNECT, CHUNKED, BASIC, ESTABLISHED),
    "connect chunked without trailer": (CONNECT, CHUNKED_WITHOUT_TRAILER, BASIC, ESTABLISHED),
    "connect odd": (CONNECT, ODD),
    "connect again": (CONNECT, UNAUTHORIZED, BASIC, ESTABLISHED),
}
REFUSED: dict[str, Handshake] = {
    "socks 4": (IPV4_4, (1, bytes.fromhex("00 5b 0000 00000000"))),
    "connect chunks": (CONNECT, (1, CHUNKED[1].replace(b"5\r\n", b"4\r\n"))),
    "socks method": (GREETING, (1, bytes.fromhex("05 ff"))),
    "socks password": (BOTH_METHODS, WITH_PASSWORD, LOGIN, (1, bytes.fromhex("01 01"))),
    "socks address": (GREETING, NO_PASSWORD, NAME, (1, bytes.fromhex("05 05 00 01 00000000 0000"))),
    "connect": (CONNECT, (1, b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")),
    "connect page": (CONNECT, (1, b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>nothing</html>")),
    "connect password": (CONNECT, UNAUTHORIZED),
}
REQUESTS = request(18, 3, 1, b"\x01\x01\x01"), request(3, 1, 2)
RESPONSES = response(1, bytes(30)), response(2, bytes(30))
MESSAGES = [each[4:] for each in REQUESTS], [each[4:] for each in RESPONSES]
CLIENT_HELLO = bytes.fromhex("16 0301 0005 0100000100")


def part(handshake: Handshake, end: int) -> bytes:
    return b"".join(data for sender, data in handshake if sender == end)


def send(connection: Connection, handshake: Handshake) -> None:
    for end, data in handshake:
        connection.packet(end, data)


def proxied(handshake: Handshake, *, apart: bool = True) -> Dialogue:
    """A connection to a proxy, with two exchanges. `apart`: not in the handshake's segments."""
    dialogue, connection = Dialogue.connected(broker=PROXY)
    if apart:
        send(connection, handshake)
        connection.exchange(REQUESTS[0], RESPONSES[0])
    else:
        connection.client(part(handshake, 0) + REQUESTS[0])
        connection.broker(part(handshake, 1) + RESPONSES[0])
    connection.exchange(REQUESTS[1], RESPONSES[1])
    connection.fin()
    return dialogue


@pytest.mark.parametrize("handshake", HANDSHAKES.values(), ids=HANDSHAKES)
def test_lengths(handshake):
    for end, length in enumerate((client_length, proxy_length)):
        head = part(handshake, end)
        for behind in (REQUESTS[0], CLIENT_HELLO):
            assert length(head + behind) == len(head)
        for size in range(len(head)):
            assert length(head[:size]) == INCOMPLETE


@pytest.mark.parametrize("handshake", REFUSED.values(), ids=REFUSED)
def test_a_refusal_has_no_length(handshake):
    assert proxy_length(part(handshake, 1)) in (REFUTED, INCOMPLETE)


@pytest.mark.parametrize(
    "data",
    [
        request(18, 3, 1, b"\x01\x01\x01"),
        b"CONNECTED",
        b"GET / HTTP/1.1\r\n\r\n",
        bytes.fromhex("05 01 00 05 02 00"),
        bytes.fromhex("05 01 00 05 01 00 02 00"),
        bytes.fromhex("04 02 2384 c0000201 00"),
        bytes.fromhex("04 01 2384 c0000201") + b"m" * 256,
        bytes.fromhex("04 01 2384 00000001 00") + b"b" * 256 + b"\0",
    ],
)
def test_other_bytes_are_no_handshake(data):
    assert client_length(data) == REFUTED


@pytest.mark.parametrize("handshake", HANDSHAKES.values(), ids=HANDSHAKES)
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("size", [1, 3, 9000])
def test_frames_behind_a_handshake(handshake, apart, size):
    packets = split(proxied(handshake, apart=apart).packets, size)
    for cuts in ([], range(len(packets))):
        out = dissect(packets, cuts=cuts)
        assert out.messages() == MESSAGES
        assert out.problems == []


@pytest.mark.parametrize("handshake", HANDSHAKES.values(), ids=HANDSHAKES)
@pytest.mark.parametrize("end", [0, 1])
def test_a_capture_of_one_direction(handshake, end):
    packets = [p for p in proxied(handshake).packets if (p.source == PROXY) == end]
    for cuts in ([], range(len(packets))):
        out = dissect(packets, cuts=cuts, ports=(1080,))
        assert out.messages()[end] == MESSAGES[end]


@pytest.mark.parametrize("handshake", HANDSHAKES.values(), ids=HANDSHAKES)
def test_tls_behind_a_handshake(handshake):
    dialogue, connection = Dialogue.connected(broker=PROXY)
    send(connection, handshake)
    connection.client(CLIENT_HELLO)
    for cuts in ([], range(len(dialogue.packets))):
        out = dissect(dialogue.packets, cuts=cuts)
        assert out.streams.connections.protocol[:1].tolist() == [TLS]


@pytest.mark.parametrize("handshake", REFUSED.values(), ids=REFUSED)
def test_a_refused_connection_gives_no_rows(handshake):
    dialogue, connection = Dialogue.connected(broker=PROXY)
    send(connection, handshake)
    connection.fin()
    for cuts in ([], range(len(dialogue.packets))):
        out = dissect(dialogue.packets, cuts=cuts)
        assert out.frames == []
        assert out.problems == []
        assert out.streams.connections.protocol[:1].tolist() != [KAFKA]


@pytest.mark.parametrize("handshake", HANDSHAKES.values(), ids=HANDSHAKES)
def test_a_capture_that_starts_in_a_handshake(handshake):
    packets = proxied(handshake).packets
    for begin in range(1, 3 + len(handshake)):
        for cuts in ([], range(len(packets))):
            assert dissect(packets[begin:], cuts=cuts, ports=(1080,)).messages() == MESSAGES


@pytest.mark.parametrize("handshake", HANDSHAKES.values(), ids=HANDSHAKES)
def test_a_handshake_whose_answers_are_captured_first(handshake):
    dialogue, connection = Dialogue.connected(broker=PROXY)
    send(connection, handshake[:1])
    send(connection, tuple(each for each in handshake if each[0] == 1))
    send(connection, tuple(each for each in handshake[1:] if each[0] == 0))
    connection.exchange(REQUESTS[0], RESPONSES[0])
    connection.exchange(REQUESTS[1], RESPONSES[1])
    for cuts in ([], range(len(dialogue.packets))):
        out = dissect(dialogue.packets, cuts=cuts)
        assert out.messages() == MESSAGES
        assert out.problems == []


def test_a_handshake_with_lost_bytes_does_not_hide_later_requests():
    dialogue, connection = Dialogue.connected(broker=PROXY)
    connection.client(CONNECT[1][:20])
    connection.client(CONNECT[1][20:30], sent=False)
    connection.client(CONNECT[1][30:])
    connection.broker(ESTABLISHED[1])
    connection.exchange(REQUESTS[0], RESPONSES[0])
    connection.exchange(REQUESTS[1], RESPONSES[1])
    connection.fin()
    for cuts in ([], range(len(dialogue.packets))):
        assert dissect(dialogue.packets, cuts=cuts, ports=(1080,)).messages() == MESSAGES


@pytest.mark.parametrize("methods", ["01 01", "03 00 01 02"])
def test_gssapi_is_the_reason_of_a_connection_without_rows(methods, tmp_path):
    """RFC 1961: tokens of authentication, the level of protection, and encrypted messages."""
    dialogue, connection = Dialogue.connected(broker=PROXY)
    connection.exchange(bytes.fromhex("05" + methods), bytes.fromhex("05 01"))
    for kind in (1, 1, 2, 3, 3):
        connection.exchange(*[bytes([1, kind, 1, 44]) + bytes(range(100)) * 3] * 2)
    connection.fin()
    path = dialogue.written(tmp_path / "a.pcap")
    tables = dissector.open_capture(path, ports=[1080]).tables(["problems", "exchanges"])
    (problem,) = tables["problems"].to_pylist()
    assert problem["kind"] == "not_kafka"
    assert "a SOCKS proxy with GSSAPI" in problem["detail"]
    assert len(tables["exchanges"]) == 0


def test_secrets_of_a_handshake_are_shown_nowhere(tmp_path):
    dialogue = Dialogue()
    for handshakes in (HANDSHAKES, REFUSED):
        for name, handshake in handshakes.items():
            connection = dialogue.connect(broker=PROXY)
            send(connection, handshake)
            if name in ("socks at once", "connect again"):
                connection.exchange(request(3, 1, 2, bytes(4)), RESPONSES[1])
            connection.fin()
    path = dialogue.written(tmp_path / "a.pcap")
    tables = dissector.open_capture(path, ports=[1080]).tables()
    shown = str({name: table.to_pylist() for name, table in tables.items()})
    assert "address a proxy" in shown
    assert PASSWORD.decode() not in shown
    assert "bWU6" not in shown

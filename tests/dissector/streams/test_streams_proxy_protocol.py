"""PROXY headers before the first frame (proxy-protocol.txt of HAProxy, sections 2.1 and 2.2)."""

from __future__ import annotations

import pytest

from dissector.streams.proxies.proxy_protocol import header_length
from tests.dissector.streams.dialogue import Dialogue, dissect, request, response

LINES = (
    b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
    b"PROXY TCP6 2001:db8::1 2001:db8::2 50000 9092\r\n",
    b"PROXY UNKNOWN\r\n",
)
SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
IPV4 = SIGNATURE + bytes.fromhex("2111000c c0000201 c0000202 c350 2384")
LOCAL = SIGNATURE + bytes.fromhex("20000000")
WITH_TLV = SIGNATURE + bytes.fromhex("21110013 c0000201 c0000202 c350 2384 04 0004 00000000")
HEADERS = (*LINES, IPV4, LOCAL, WITH_TLV)


@pytest.mark.parametrize("header", HEADERS)
def test_header_length(header):
    assert header_length(header) == len(header)
    assert header_length(header + request(3, 1, 1)) == len(header)


@pytest.mark.parametrize("header", [*HEADERS, b"PROXY " + bytes(200) + b"\r\n", b"\r\n", b"PRO"])
def test_an_incomplete_header_has_no_length(header):
    whole = len(header) if header in HEADERS else len(header) + 1
    assert all(header_length(header[:size]) == 0 for size in range(whole))


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("apart", [True, False])
def test_frames_behind_a_header(header, apart):
    dialogue, connection = Dialogue.connected(broker=(7, 5555))
    first = request(18, 3, 1, b"\x01\x01\x01")
    if apart:
        connection.client(header)
        connection.client(first)
    else:
        connection.client(header + first)
    connection.broker(response(1))
    connection.exchange(request(3, 1, 2), response(2))
    connection.fin()
    for cuts in ([], range(len(dialogue.packets))):
        out = dissect(dialogue.packets, cuts=cuts)
        assert out.messages() == (
            [first[4:], request(3, 1, 2)[4:]],
            [response(1)[4:], response(2)[4:]],
        )
        assert out.problems == []


def test_bytes_that_begin_like_a_header():
    dialogue = Dialogue()
    dialogue.connect().client(b"PROXY by words alone")
    dialogue.connect().client(SIGNATURE + b"\x31\x11\x00\x00" + request(3, 1, 1))
    out = dissect(dialogue.packets)
    assert out.frames == []

"""Bits of evidence for a request: literal bytes, complete and in part."""

from __future__ import annotations

import struct

import pytest

from dissector.protocol.evidence import (
    BATCH,
    COMPLETE,
    IMPOSSIBLE,
    MOSTLY_SURPLUS,
    NUMBERS_ONLY,
    SURPLUS,
    UNKNOWN,
    evidence,
)

PRODUCE = (
    struct.pack(">hhih", 0, 7, 5, 8) + b"producer"  # API 0, version 7, correlation id, client id
    + struct.pack(">hhii", -1, 1, 30000, 1)  # transactional id, acks, timeout, one topic
    + struct.pack(">h", 5) + b"topic" + struct.pack(">iii", 1, 0, 70) + bytes(70)
)  # fmt: skip


def test_a_complete_request():
    assert evidence(PRODUCE, len(PRODUCE)) == 13 + COMPLETE


def test_every_beginning_of_a_request_is_possible():
    for there in range(len(PRODUCE)):
        assert evidence(PRODUCE[:there], len(PRODUCE)) > IMPOSSIBLE, there


@pytest.mark.parametrize(
    ("request_head", "text"),
    [
        ("0000 0003 00000005 0002 6d65 ffff 0001 00000001 00000001 0001 74 00000001 00000000", 3),
        ("0000 000d 00000005 0002 6d65 00 00 0001 00000001 02" + "11" * 16 + "02 00000000", 2),
    ],
    ids=["version 3", "version 13"],
)
def test_a_batch_is_evidence_for_an_incomplete_request(request_head: str, text: int):
    """A batch of 70,000 bytes: base offset 0, length, leader epoch -1, magic 2."""
    length = "f1a204" if request_head.startswith("0000 000d") else "00011170"
    head = bytes.fromhex(request_head + length)
    batch = bytes.fromhex("0000000000000000 00011164 ffffffff 02")
    size = len(head) + 70_003
    assert evidence(head + batch, size) == text + BATCH
    assert evidence(head + batch[:-1], size) == text
    others = (
        "0000000000000001 00011164 ffffffff 02",
        "0000000000000000 0001116a ffffffff 02",
        "0000000000000000 0001115e ffffffff 02",
        "0000000000000000 00011164 ffffffff 01",
    )
    for other in others:
        assert evidence(head + bytes.fromhex(other), size) == text


def test_acks_of_two_replicas():
    """Brokers up to 0.8 accept it, and later ones respond with INVALID_REQUIRED_ACKS."""
    two = PRODUCE.replace(struct.pack(">hh", -1, 1), struct.pack(">hh", -1, 2), 1)
    assert two != PRODUCE
    assert evidence(two, len(two)) == evidence(PRODUCE, len(PRODUCE))


@pytest.mark.parametrize(
    "hexadecimal",
    [
        "00000001 00010008 0000 0040 0000",  # OpenFlow: acks of 64
        "00000000 00000000 ffff 0001 00000001 ffffffff",  # acks of 1, a negative count of topics
        "00000000 00000000 ffff 0001 00000001 00ffffff",  # more topics than bytes
        "00000000 00000000 ffff 0001 00000001 00000000",  # no topic
        "0003 0001 00000001 8000",  # a client id of negative length
    ],
)
def test_what_refutes_a_request_although_most_of_it_is_missing(hexadecimal: str):
    assert evidence(bytes.fromhex(hexadecimal), 1 << 20) == IMPOSSIBLE


@pytest.mark.parametrize(
    ("hexadecimal", "bits"),
    [
        ("00000008 004b0e00 0022 fd31", -8 - 20),  # DoIP; nothing else is text
        ("0012 0063 00000001 0002 ff41", UNKNOWN - 20),  # an unknown version
    ],
)
def test_a_client_id_that_is_not_utf8_is_evidence_against_a_request(hexadecimal: str, bits: int):
    assert evidence(bytes.fromhex(hexadecimal), 1 << 20) == bits


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (b"producer", b"pr\xf6duce\xdf"),
        (b"topic", b"t\xf6pic"),
        (b"topic", b"topi\0"),
        (b"topic", b"\x1fopic"),
        (b"topic", b"topi\x7f"),
    ],
)
def test_text_that_clients_rarely_send_weakens_a_complete_request(text: bytes, other: bytes):
    """Brokers decode bytes that are not UTF-8 with replacement characters."""
    odd = PRODUCE.replace(text, other)
    assert evidence(odd, len(odd)) == COMPLETE - 20


@pytest.mark.parametrize(
    ("client_id", "text"), [(b"produce\r", 7), (b"prod\r\0\0\0", 0), (b"p\0r\0o\0d\0", 0)]
)
def test_control_characters_of_a_client_id_are_no_evidence(client_id: bytes, text: int):
    """If most characters are control characters, the others are numbers, too."""
    odd = PRODUCE.replace(b"producer", client_id)
    assert evidence(odd, len(odd)) == text + len("topic") + COMPLETE


@pytest.mark.parametrize(
    ("hexadecimal", "size", "bits"),
    [
        ("000c 0000 00000007 0000 0000 00000000 0000", 18, COMPLETE + NUMBERS_ONLY),
        ("000c 0000 00000007 0000 0000 00000000 0000 01", 19, SURPLUS + NUMBERS_ONLY),
        ("000c 0000 00000007 ffff 0000 00000000 0000", 18, COMPLETE),
        ("000c 001c 00000007 0000 0000 00000000 0000", 18, UNKNOWN + NUMBERS_ONLY),
        ("000c 0000 00000007 0000 0000 00000000 0000", 37, MOSTLY_SURPLUS + NUMBERS_ONLY),
    ],
)
def test_a_body_of_zeros_is_little_evidence(hexadecimal: str, size: int, bits: int):
    """A Heartbeat with an empty client id, or none, and an empty group and member id."""
    assert evidence(bytes.fromhex(hexadecimal).ljust(size, b"\0"), size) == bits


def test_a_body_that_ends_in_the_first_of_many_bytes():
    """ZooKeeper: getData for a path, read from the third byte of its size on."""
    head = bytes.fromhex("0010 0000 00040000 0010") + b"/brokers/topics/"
    assert evidence(head, 0x360000) == evidence(head + bytes(99), 0x360000) == 16 + MOSTLY_SURPLUS


def test_an_unknown_version_has_less_evidence_than_a_known_one():
    head = struct.pack(">ih", 1, 8) + b"producer"
    unknown = struct.pack(">hh", 18, 99) + head
    known = struct.pack(">hh", 18, 0) + head
    assert UNKNOWN < evidence(unknown, len(unknown)) < evidence(known, len(known))


def test_bytes_behind_a_request_weaken_it_and_do_not_refute_it():
    request = struct.pack(">hhih", 18, 0, 1, 8) + b"producer"
    evidences = [evidence(request + bytes(n), len(request) + n) for n in (0, 4, 4000)]
    assert evidences == sorted(evidences, reverse=True)
    assert evidences[-1] > IMPOSSIBLE


def test_control_characters_are_not_evidence():
    head = struct.pack(">hhih", 3, 1, 1, 8)
    assert evidence(head + b"\1\0\2\0\0\3\0\1", 1 << 20) < 0 < evidence(head + b"producer", 1 << 20)

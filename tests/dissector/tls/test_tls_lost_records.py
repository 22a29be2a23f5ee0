"""Records that are lost or damaged: bytes are right, or missing and a problem."""

import random

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from dissector.tls import KeyLog
from tests.dissector.tls.decrypting import (
    Part,
    assert_right_or_absent,
    decrypted,
    needs_openssl,
    placed,
)
from tests.dissector.tls.tls_made import CLIENT, SERVER, Dialogue, by_command_line, contexts, talk


@pytest.mark.parametrize("size", [300, 1448])
def test_each_piece_lost_once(made, size):
    parts = placed(made.wire, size)
    total = sum(map(len, made.plain))
    least = {300: 5 * 900, 1448: 8 * 1448}[size]
    begin = next(i for i, part in enumerate(parts) if part[1] > 5000)
    for lost in range(len(parts)):
        session, texts = decrypted(parts[:lost] + parts[lost + 1 :], KeyLog(made.keys))
        follows = any(end == parts[lost][0] for end, _, _ in parts[lost + 1 :])
        decrypted_size = assert_right_or_absent(made, session, texts, is_followed=follows)
        if lost > begin:  # behind the handshake
            assert decrypted_size >= total - least


def test_many_pieces_lost(made):
    rng = random.Random(4)
    parts = placed(made.wire, 500)
    for _ in range(40):
        left = [part for i, part in enumerate(parts) if i < 12 or rng.random() > 0.1]
        session, texts = decrypted(left, KeyLog(made.keys))
        assert_right_or_absent(made, session, texts)


@pytest.fixture(scope="module", params=["TLSv1_2", "TLSv1_3"])
def long(request, folder) -> Dialogue:
    """A record of 50 bytes for each of many messages of the client."""
    rng = random.Random(11)
    messages = [(CLIENT, rng.randbytes(50)) for _ in range(700)]
    return talk(folder, contexts(folder, request.param), messages)


def records_of(made: Dialogue, end: int) -> list[Part]:
    """The records of one end, behind its handshake."""
    parts = [part for part in placed(made.wire) if part[0] == end]
    return parts[-len(made.plain[end]) // 50 :]


def test_bytes_like_a_header_hide_no_record_at_the_end(long):
    """The remaining bytes of a lost record seem to begin a record that exceeds the capture."""
    parts = placed(long.wire)
    lost = records_of(long, CLIENT)[-10]
    end, at, data = lost
    parts[parts.index(lost)] = end, at + 20, bytes.fromhex("17 0303 4000") + data[25:]
    session, texts = decrypted(parts, KeyLog(long.keys))
    assert_right_or_absent(long, session, texts)
    assert texts[CLIENT] == [long.plain[CLIENT][:-500], long.plain[CLIENT][-450:]]


def test_more_lost_records_than_are_always_tried(long):
    lost = records_of(long, CLIENT)[100:600]
    parts = [part for part in placed(long.wire) if part not in lost]
    session, texts = decrypted(parts, KeyLog(long.keys))
    assert texts[CLIENT] == [long.plain[CLIENT][:5000], long.plain[CLIENT][30000:]]
    assert [problem.kind for problem in session.problems] == ["tls_lost_records"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_finished_of_the_client_and_data_are_lost(long, count):
    """`count`: lost packets of the client, of which the first one has Finished."""
    sent = [part for part in placed(long.wire) if part[0] == CLIENT]
    parts = [part for part in placed(long.wire) if part not in sent[1 : 1 + count]]
    _, texts = decrypted(parts, KeyLog(long.keys))
    left = long.plain[CLIENT][50 * (count - 1) :]
    assert texts[CLIENT] == ([left] if count == 1 else [b"", left])


@needs_openssl
def test_two_changes_of_keys_are_lost(folder):
    lines = ["one", "k", "k", "two"]
    made = by_command_line(folder, ["-tls1_3"], ["-tls1_3"], lines)
    sent = [part for part in placed(made.wire) if part[0] == CLIENT]
    parts = [part for part in placed(made.wire) if part not in sent[-3:-1]]
    _, texts = decrypted(parts, KeyLog(made.keys))
    assert texts == [[b"one\n", b"two\n"], [b"eno\nowt\n"]]


def test_damage_now_and_then_does_not_add_up(long):
    damaged = records_of(long, CLIENT)[::8]
    parts = [
        (end, at, data[:-1] + bytes([data[-1] ^ 1]) if (end, at, data) in damaged else data)
        for end, at, data in placed(long.wire)
    ]
    session, texts = decrypted(parts, KeyLog(long.keys))
    assert sum(map(len, texts[CLIENT])) == 50 * (700 - len(damaged))
    assert {problem.kind for problem in session.problems} == {"tls_lost_records"}
    assert len(session.problems) == len(damaged)


def test_a_damaged_length_takes_no_other_record_with_it(long):
    target = records_of(long, CLIENT)[300]
    parts = [
        (end, at, data[:3] + b"\x10" + data[4:] if (end, at, data) == target else data)
        for end, at, data in placed(long.wire)
    ]
    _, texts = decrypted(parts, KeyLog(long.keys))
    assert texts[CLIENT] == [long.plain[CLIENT][:15000], long.plain[CLIENT][15050:]]


def test_records_behind_a_hole_that_begin_inside_segments(long):
    begin, end = (records_of(long, CLIENT)[at][1] for at in (100, 110))
    stream = b"".join(data for side, data in long.wire if side == CLIENT)
    server = [part for part in placed(long.wire) if part[0] == SERVER]
    segments = [(CLIENT, at, stream[at : at + 1448]) for at in range(end - 20, len(stream), 1448)]
    parts = [*server, (CLIENT, 0, stream[: begin + 20]), *segments]
    session, texts = decrypted(parts, KeyLog(long.keys))
    assert texts[CLIENT] == [long.plain[CLIENT][:5000], long.plain[CLIENT][5500:]]
    assert [problem.kind for problem in session.problems] == ["tls_lost_records"]


@pytest.mark.parametrize("header", [b"\x14\3\3\x20\0", b"\x15\3\3\x20\0"])
def test_bytes_behind_a_hole_that_look_like_an_unencrypted_record(long, header):
    """They do not hide the records behind them."""
    end, at, data = target = records_of(long, CLIENT)[300]
    behind = (end, at + 20, header + data[25:])
    parts = [behind if part == target else part for part in placed(long.wire)]
    session, texts = decrypted(parts, KeyLog(long.keys))
    assert texts[CLIENT] == [long.plain[CLIENT][:15000], long.plain[CLIENT][15050:]]
    assert [problem.kind for problem in session.problems] == ["tls_lost_records"]


def test_flipped_bytes_never_cause_wrong_ones(made):
    rng = random.Random(5)
    parts = placed(made.wire, 1448)
    for _ in range(150):
        damaged = []
        for end, at, data in parts:
            changed = bytearray(data)
            if rng.random() < 0.05:
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            damaged.append((end, at, bytes(changed)))
        session, texts = decrypted(damaged, KeyLog(made.keys))
        assert_right_or_absent(made, session, texts)

"""Data that OpenSSL sent, decrypted with its key log: bytes are right, or missing and a problem."""

import contextlib
import pickle
import random
import re
import shutil
import ssl
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from dissector.tls import HOLE, KeyLog, keylog
from dissector.tls.keylog import may_be_key_log
from dissector.tls.record_layer import RecordReader
from dissector.tls.session import TlsSession
from dissector.tls.suites import NAMES
from tests.dissector.tls.tls_made import (
    CLIENT,
    NO_ENCRYPT_THEN_MAC,
    RETRIED,
    SERVER,
    Contexts,
    Dialogue,
    by_command_line,
    contexts,
    talk,
    with_early_data,
)

MESSAGES = [
    (end, bytes(random.Random(size + end).randbytes(size)))
    for size in (1, 30, 700, 16384, 40000)
    for end in (CLIENT, SERVER)
]
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing")

Part = tuple[int, int, bytes]
"""End, position, bytes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tls")


def placed(wire: list[tuple[int, bytes]], size: int = 1 << 20) -> list[Part]:
    """The data on the wire in parts of a size, with their positions."""
    at = [0, 0]
    parts = []
    for end, data in wire:
        for begin in range(0, len(data), size):
            part = data[begin : begin + size]
            parts.append((end, at[end], part))
            at[end] += len(part)
    return parts


def decrypted(parts: list[Part], keys: KeyLog) -> tuple[TlsSession, list[list]]:
    """The data of each end, in stretches without missing bytes."""
    session, texts = TlsSession(keys), no_texts()
    feed(session, parts, texts)
    take(session.read(last=True), texts)
    return session, texts


def no_texts() -> list[list]:
    """The texts of both ends, before any data was read."""
    return [[bytearray()], [bytearray()]]


def feed(session: TlsSession, parts: list[Part], texts: list[list]) -> None:
    """Feed parts one by one, and take the data behind each."""
    for time, (end, at, data) in enumerate(parts):
        session.feed(end, at, data, (time, 0, time + 1))
        take(session.read(), texts)


def take(plains, texts) -> None:
    for plain in plains:
        holes, at = divmod(plain.at, HOLE)
        assert at == sum(map(len, texts[plain.end]))
        if holes == len(texts[plain.end]):
            texts[plain.end].append(bytearray())
        assert holes == len(texts[plain.end]) - 1
        texts[plain.end][-1] += plain.data


def assert_all_decrypted(made: Dialogue, size: int = 1 << 20) -> TlsSession:
    session, texts = decrypted(placed(made.wire, size), KeyLog(made.keys))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert [t for t in session.problems if t.kind != "tls_cut_record"] == []
    return session


SUITES = """
    ECDHE-RSA-AES128-GCM-SHA256 ECDHE-RSA-AES256-GCM-SHA384 ECDHE-RSA-CHACHA20-POLY1305
    ECDHE-RSA-AES128-SHA ECDHE-RSA-AES256-SHA ECDHE-RSA-AES128-SHA256 ECDHE-RSA-AES256-SHA384
    AES128-GCM-SHA256 AES256-GCM-SHA384 AES128-SHA AES256-SHA AES128-SHA256 AES256-SHA256
    AES128-CCM AES256-CCM AES128-CCM8 AES256-CCM8
    ECDHE-ECDSA-AES128-GCM-SHA256 ECDHE-ECDSA-AES256-GCM-SHA384 ECDHE-ECDSA-CHACHA20-POLY1305
    ECDHE-ECDSA-AES128-SHA ECDHE-ECDSA-AES256-SHA384 ECDHE-ECDSA-AES128-CCM
    ECDHE-ECDSA-AES256-CCM8
"""


@pytest.mark.parametrize("cipher", SUITES.split())
def test_each_cipher_of_tls_1_2(folder, cipher):
    kind = "EC" if "ECDSA" in cipher else "RSA"
    made = talk(folder, contexts(folder, "TLSv1_2", cipher, kind), MESSAGES)
    session = assert_all_decrypted(made)
    facts = session.facts
    assert (facts.version, facts.sni, facts.alpn) == ("1.2", "broker.test", "kafka")
    assert facts.cipher in NAMES.values()
    assert session.client == CLIENT


@pytest.mark.parametrize("cipher", ["ECDHE-RSA-AES128-SHA256", "ECDHE-RSA-AES256-SHA384"])
def test_cbc_that_is_authenticated_before_it_is_encrypted(folder, cipher):
    both = contexts(folder, "TLSv1_2", cipher)
    both[0].options |= NO_ENCRYPT_THEN_MAC
    assert_all_decrypted(talk(folder, both, MESSAGES))


def test_tls_1_3(folder):
    session = assert_all_decrypted(talk(folder, contexts(folder, "TLSv1_3"), MESSAGES))
    facts = session.facts
    assert (facts.version, facts.cipher) == ("1.3", "TLS_AES_256_GCM_SHA384")
    assert (facts.sni, facts.alpn) == ("broker.test", "kafka")


@pytest.mark.slow
@needs_openssl
@pytest.mark.parametrize(
    "cipher", [NAMES[number] for number in (0x1301, 0x1302, 0x1303, 0x1304, 0x1305)]
)
def test_each_cipher_of_tls_1_3_over_changes_of_keys(folder, cipher):
    arguments = ["-tls1_3", "-ciphersuites", cipher]
    # K asks the other end to change its key, too; k does not.
    lines = ["one", "K", "two", "k", "three", "K", "K", "four"]
    made = by_command_line(folder, arguments, arguments, lines)
    session, texts = decrypted(placed(made.wire), KeyLog(made.keys))
    assert texts == [[b"one\ntwo\nthree\nfour\n"], [b"eno\nowt\neerht\nruof\n"]]
    assert (session.problems, session.facts.cipher) == ([], cipher)


@pytest.mark.slow
@needs_openssl
def test_renegotiation_is_a_problem_and_earlier_data_is_read(folder):
    arguments = ["-tls1_2"]
    made = by_command_line(
        folder, [*arguments, "-client_renegotiation"], arguments, ["one", "R", "two"]
    )
    session, texts = decrypted(placed(made.wire), KeyLog(made.keys))
    assert texts == [[b"one\n"], [b"eno\n"]]
    assert [trouble.kind for trouble in session.problems] == ["tls_renegotiation"]


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_resumption(folder, version):
    both = contexts(folder, version)
    first = talk(folder, both, MESSAGES[:4])
    second = talk(folder, both, MESSAGES[:4], session=first.session)
    assert sum(len(data) for _, data in second.wire) < sum(len(data) for _, data in first.wire)
    assert_all_decrypted(second)


def test_secrets_by_session_id(folder):
    """The form in which extract-tls-secrets 4.0.0 logs TLS 1.2 in a broker."""
    both = contexts(folder, "TLSv1_2")
    both[1].options |= ssl.OP_NO_TICKET
    made = talk(folder, both, MESSAGES[:4])
    assert made.session is not None
    session_id, secret = made.session.id.hex().upper(), made.keys.split()[-1].decode().upper()
    made.keys = f"RSA Session-ID:{session_id} Master-Key:{secret}\n".encode()
    assert may_be_key_log(made.keys)
    assert_all_decrypted(made)


def test_hello_retry_request(folder):
    both = contexts(folder, "TLSv1_3")
    both[1].set_ecdh_curve("secp384r1")
    made = talk(folder, both, MESSAGES)
    retry = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
    assert any(retry in data for _, data in made.wire)
    assert_all_decrypted(made)


EARLY = random.Random(7).randbytes(6000)


@pytest.fixture(scope="module")
def resumed(folder) -> list[Dialogue]:
    """With early data that the server read, and with the same once more, which it refused."""
    return with_early_data(folder, [], EARLY, 2)


@needs_openssl
@pytest.mark.parametrize("size", [1, 1448, 1 << 20])
def test_early_data(resumed, size):
    assert bytes(resumed[0].plain[CLIENT]) == EARLY + b"a line\n"
    session = assert_all_decrypted(resumed[0], size)
    assert session.problems == []


@needs_openssl
def test_early_data_before_data_of_the_server(resumed):
    made = resumed[0]
    parts = placed(made.wire)
    for first in (CLIENT, SERVER):
        ordered = sorted(parts, key=lambda part: part[0] != first)
        session, texts = decrypted(ordered, KeyLog(made.keys))
        assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
        assert session.problems == []


@needs_openssl
def test_early_data_that_the_server_refused_is_skipped(resumed):
    session, texts = decrypted(placed(resumed[1].wire), KeyLog(resumed[1].keys))
    assert texts == [[b"a line\n"], [b"a line\n"]]
    assert [(trouble.kind, trouble.end) for trouble in session.problems] == [
        ("tls_early_data", CLIENT)
    ]
    assert "rejected" in session.problems[0].detail


@pytest.mark.slow
@needs_openssl
def test_early_data_that_a_retry_refused_is_skipped(folder):
    (made,) = with_early_data(folder, ["-groups", "P-384"], EARLY, 1, RETRIED)
    session, texts = decrypted(placed(made.wire), KeyLog(made.keys))
    assert texts == [[b"a line\n"], [b"a line\n"]]
    assert [trouble.kind for trouble in session.problems] == ["tls_early_data"]


@needs_openssl
def test_early_data_without_its_secret(resumed):
    lines = resumed[0].keys.splitlines(keepends=True)
    keys = b"".join(line for line in lines if b"CLIENT_EARLY" not in line)
    session, texts = decrypted(placed(resumed[0].wire), KeyLog(keys))
    assert texts == [[b"", b"a line\n"], [b"a line\n"]]
    assert [trouble.kind for trouble in session.problems] == ["tls_early_data"]
    assert "lacks" in session.problems[0].detail


@needs_openssl
def test_each_piece_of_early_data_lost_once(resumed):
    made = resumed[0]
    parts = placed(made.wire, 700)
    for lost in range(len(parts)):
        session, texts = decrypted(parts[:lost] + parts[lost + 1 :], KeyLog(made.keys))
        follows = any(end == parts[lost][0] for end, _, _ in parts[lost + 1 :])
        assert_right_or_absent(made, session, texts, is_followed=follows)


@needs_openssl
def test_the_end_of_early_data_and_the_finished_behind_it_are_lost(resumed):
    """In one packet: then two epochs end in lost bytes. More data may be in a part of the wire."""
    made = resumed[0]
    stream = b"".join(data for end, data in made.wire if end == CLIENT)
    sent, at = [], 0
    while at < len(stream):
        size = 5 + int.from_bytes(stream[at + 3 : at + 5])
        sent.append((CLIENT, at, stream[at : at + size]))
        at += size
    server = [part for part in placed(made.wire) if part[0] == SERVER]
    _, texts = decrypted([*server, *sent[:-3], sent[-1]], KeyLog(made.keys))
    assert texts == [[EARLY, b"a line\n"], [b"a line\n"]]


@pytest.fixture(scope="module", params=["1.3", "1.2", "cbc"])
def made(request, folder) -> Dialogue:
    version = "TLSv1_3" if request.param == "1.3" else "TLSv1_2"
    cipher = "ECDHE-RSA-AES128-SHA256" if request.param == "cbc" else ""
    rng = random.Random(3)
    messages = [(end, rng.randbytes(rng.randrange(1, 900))) for _ in range(40) for end in (0, 1)]
    return talk(folder, contexts(folder, version, cipher), messages)


@pytest.mark.parametrize("size", [1, 7, 1448])
def test_records_in_any_pieces(made, size):
    assert_all_decrypted(made, size)


def test_ends_that_come_one_after_the_other(made):
    parts = placed(made.wire)
    for first in (CLIENT, SERVER):
        ordered = sorted(parts, key=lambda part: part[0] != first)
        _, texts = decrypted(ordered, KeyLog(made.keys))
        assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


def test_keys_that_are_logged_late(made):
    keys = KeyLog(grows=True)
    session, texts, parts = TlsSession(keys), no_texts(), placed(made.wire)
    feed(session, parts[: len(parts) // 2], texts)
    assert texts == no_texts()
    for line in made.keys.splitlines():
        keys.add(line)
    feed(session, parts[len(parts) // 2 :], texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_session_that_moved_finds_secrets_that_come_later(folder, version):
    """As in a pcapng file whose secrets are in a later run than the handshake."""
    made = talk(folder, contexts(folder, version), MESSAGES)
    session, texts = TlsSession(KeyLog(grows=True)), no_texts()
    feed(session, placed(made.wire), texts)
    session = pickle.loads(pickle.dumps(session))
    session.keys = KeyLog(made.keys)
    take(session.read(last=True), texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


@pytest.mark.parametrize(
    ("version", "cipher"),
    [
        ("TLSv1_3", ""),
        ("TLSv1_2", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLSv1_2", "AES128-CCM8"),
        ("TLSv1_2", "ECDHE-RSA-AES128-SHA256"),
    ],
)
def test_a_session_can_be_pickled_at_any_time(folder, version, cipher):
    made = talk(folder, contexts(folder, version, cipher), MESSAGES[:4])
    keys, other = KeyLog(made.keys), b"\xab" * 48
    keys.add(b"CLIENT_RANDOM " + b"00" * 32 + b" " + other.hex().encode())
    session, texts = TlsSession(keys), no_texts()
    for part in placed(made.wire, 200):
        feed(session, [part], texts)
        pickled = pickle.dumps(session)
        assert other not in pickled, "the secrets of other sessions are not passed on"
        session = pickle.loads(pickled)
        session.keys = keys
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


def test_a_damaged_certificate_is_not_needed(folder):
    made = talk(folder, contexts(folder, "TLSv1_2"), MESSAGES[:4])
    at, (end, data) = next(each for each in enumerate(made.wire) if each[1][0] == SERVER)
    record = re.search(rb"\x16\x03\x03..\x0b", data, re.DOTALL)  # it begins with the message
    assert record is not None
    made.wire[at] = end, data[: record.end()] + b"\xff" + data[record.end() + 1 :]
    assert_all_decrypted(made)


def assert_right_or_absent(
    made: Dialogue, session: TlsSession, texts: list[list], *, is_followed: bool = True
) -> int:
    """Each stretch is part of the data that was sent, in order. Returns the number of bytes.

    `is_followed`: data follows the missing data, so that a problem must report it.
    """
    for end in (CLIENT, SERVER):
        at = 0
        for stretch in texts[end]:
            at = made.plain[end].index(stretch, at) + len(stretch)
    size = sum(len(stretch) for each in texts for stretch in each)
    if is_followed and size < sum(map(len, made.plain)):
        assert session.problems
    return size


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


def failed(folder: Path, both: Contexts) -> Dialogue:
    """The handshake of a client that trusts no server, or does not have the server's version."""
    made = Dialogue()
    pipes = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
    ends = both[0].wrap_bio(*pipes[0]), both[1].wrap_bio(*pipes[1], server_side=True)
    for end in (CLIENT, SERVER) * 3:
        with contextlib.suppress(ssl.SSLError):
            ends[end].do_handshake()
        if data := pipes[end][1].read():
            made.wire.append((end, data))
            pipes[1 - end][0].write(data)
    made.keys = (folder / "keys.log").read_bytes()
    return made


@pytest.mark.parametrize("order", [(CLIENT, SERVER), (SERVER, CLIENT)])
@pytest.mark.parametrize(
    ("versions", "alert"),
    [
        (("TLSv1_2", "TLSv1_3"), "protocol_version"),
        (("TLSv1_2", "TLSv1_2"), "unknown_ca"),
        (("TLSv1_3", "TLSv1_3"), "unknown_ca"),
    ],
)
def test_a_failed_handshake_is_a_problem_with_its_alert(folder, versions, alert, order):
    client, server = (contexts(folder, version)[end] for end, version in enumerate(versions))
    client.verify_mode = ssl.CERT_REQUIRED
    made = failed(folder, (client, server))
    parts = sorted(placed(made.wire), key=lambda part: part[0] == CLIENT)  # of one block
    parts = [(order[end], at, data) for end, at, data in parts]
    for keys in (made.keys, b""):
        session = TlsSession(KeyLog(keys))
        for end, at, data in parts:
            session.feed(end, at, data, (0, 0, 0))
        session.read(last=True, is_closed=True)
        details = [(problem.kind, problem.detail) for problem in session.problems]
        assert details == [("tls_alert", f"TLS failed: alert {alert}")]


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("count", [0, 1])
def test_a_handshake_without_keys_did_not_fail(folder, version, count):
    """Whether requests follow, or the client closes."""
    wire = talk(folder, contexts(folder, version), MESSAGES[2:4] * count).wire
    close = (CLIENT, b"\x17\3\3\0\x13" + bytes(19)) if version == "TLSv1_3" else wire[-1]
    session = TlsSession(KeyLog())
    for number, (end, at, data) in enumerate(placed([*wire, close, (SERVER, close[1])])):
        session.feed(end, at, data, (number, 0, number))
        session.read()
    session.read(last=True, is_closed=True)
    assert session.problems == []


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("has_keys", [False, True])
def test_a_connection_that_is_closed_during_the_handshake(folder, version, is_closed, has_keys):
    made = talk(folder, contexts(folder, version), [])
    for count, missing, sender in ((1, "ServerHello", SERVER), (2, "client's Finished", CLIENT)):
        session = TlsSession(KeyLog(made.keys if has_keys else b""))
        for end, at, data in placed(made.wire[:count]):
            session.feed(end, at, data, (0, 0, 0))
        session.read(last=True, is_closed=is_closed)
        problems = [(each.kind, each.detail, each.end) for each in session.problems]
        detail = f"TLS failed: the connection ended before the {missing}"
        assert problems == [("tls_closed", detail, sender)] * is_closed


def test_traffic_secrets_that_are_logged_after_those_of_the_handshake(folder):
    made = talk(folder, contexts(folder, "TLSv1_3"), MESSAGES[:4])
    early, late = KeyLog(), made.keys.splitlines(keepends=True)
    for line in late:
        if b"HANDSHAKE" in line:
            early.add(line)
    session, texts = TlsSession(early), no_texts()
    feed(session, placed(made.wire), texts)
    early.add(b"".join(late))
    take(session.read(last=True), texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert session.problems == []


def test_random_bytes_raise_nothing():
    rng = random.Random(6)
    for _ in range(300):
        session = TlsSession(KeyLog(grows=True))
        at = [0, 0]
        for _ in range(rng.randrange(1, 20)):
            end, data = rng.randrange(2), rng.randbytes(rng.randrange(200))
            if rng.random() < 0.6:
                data = bytes([rng.choice([20, 21, 22, 23]), 3, 3, 0, len(data)]) + data
            session.feed(end, at[end], data, (0, 0, 0))
            at[end] += len(data) + rng.choice([0, 0, 0, 5])
            assert session.read() == []
        session.read(last=True)


def test_the_reason_why_nothing_is_decrypted(made, folder):
    parts = placed(made.wire)

    def kinds(parts: list[Part], keys: KeyLog) -> list[str]:
        session, texts = decrypted(parts, keys)
        assert texts == no_texts()
        assert session.is_over
        return [trouble.kind for trouble in session.problems]

    other = KeyLog(b"CLIENT_RANDOM " + b"ab" * 32 + b" " + b"cd" * 48 + b"\n")
    assert kinds(parts, other) == ["tls_no_keys"]
    fields = [each.split() for each in made.keys.splitlines() if not each.startswith(b"#")]
    wrong = b"\n".join(b" ".join([*each[:2], each[2][::-1]]) for each in fields)
    assert kinds(parts, KeyLog(wrong)) == ["tls_wrong_keys"] * 2
    assert kinds(parts[6:], KeyLog(made.keys)) == ["tls_no_handshake"]
    assert kinds(parts, KeyLog()) == []  # only asked for with secrets


@pytest.mark.parametrize(
    "case", ["no_handshake", "malformed", "unsupported", "given_up", "no_keys", "no_keys: data"]
)
def test_problems_do_not_depend_on_how_many_bytes_are_read_at_once(made, folder, case):
    parts, keys = placed(made.wire), made.keys
    if case == "no_handshake":
        parts = parts[next(n for n in range(6, len(parts)) if parts[n][0] == SERVER) :]
    elif case == "malformed":  # a message of 16 MiB
        parts[0] = (CLIENT, 0, b"\x16\3\1\0\4\1\xff\xff\xff" + parts[0][2][9:])
    elif case == "unsupported":
        old = talk(folder, contexts(folder, "TLSv1_1"), MESSAGES[:4])
        parts, keys = placed(old.wire), old.keys
    elif case.startswith("no_keys"):  # more bytes than wait for them
        messages = [(end, bytes(60_000)) for _ in range(5) for end in (CLIENT, SERVER)]
        large = talk(folder, contexts(folder, "TLSv1_3"), messages)
        parts, lines = placed(large.wire), large.keys.splitlines(keepends=True)
        kept = b"HANDSHAKE" if case == "no_keys: data" else b"EARLY"
        keys = other_sessions(1) + b"".join(line for line in lines if kept in line)
    else:
        parts[8:] = [(end, at, b"\x17\3\3\0\x30" * (len(data) // 5)) for end, at, data in parts[8:]]
    problems = []
    for count in (1, 3, len(parts)):
        session = TlsSession(KeyLog(keys))
        for first in range(0, len(parts), count):
            for number in range(first, min(first + count, len(parts))):
                end, at, data = parts[number]
                session.feed(end, at, data, (number, 0, number))
            session.read()
        session.read(last=True)
        problems.append(sorted(session.problems, key=lambda each: each.time))
    assert {each.kind for each in problems[0]} == {f"tls_{case.partition(':')[0]}"}
    assert problems[0] == problems[1] == problems[2]


def of_end(made: Dialogue, end: int) -> list[Part]:
    return [part for part in placed(made.wire) if part[0] == end]


def other_sessions(count: int) -> bytes:
    """Lines of a key log, of TLS 1.3 and 1.2."""
    rng = random.Random(13)
    lines = (
        b"%s %s %s\n" % (label, rng.randbytes(32).hex().encode(), rng.randbytes(48).hex().encode())
        for _ in range(count)
        for label in (b"SERVER_HANDSHAKE_TRAFFIC_SECRET", b"CLIENT_RANDOM")
    )
    return b"".join(lines)


def test_a_capture_of_one_end_is_read(made):
    """Except for the client's in TLS 1.2, whose keys need the server's random."""
    for end in (CLIENT, SERVER):
        session, texts = decrypted(of_end(made, end), KeyLog(other_sessions(5) + made.keys))
        if end == CLIENT and session.facts.version != "1.3":
            (trouble,) = session.problems
            assert trouble.kind == "tls_no_handshake"
            assert trouble.detail == "not decrypted: its ServerHello is not in the capture"
        else:
            assert texts[end] == [made.plain[end]]
            assert session.problems == []


def test_the_problem_names_the_client_hello_of_a_session_that_is_not_in_the_key_log(made):
    for parts in (of_end(made, SERVER), placed(made.wire)[1:]):
        (trouble,) = decrypted(parts, KeyLog(other_sessions(5)))[0].problems
        assert trouble.kind == "tls_no_handshake"
        assert trouble.detail == "not decrypted: its ClientHello is not in the capture"


@pytest.mark.parametrize("is_server_first", [False, True])
def test_a_lost_client_hello_is_found_in_the_key_log(made, is_server_first):
    _, *parts = placed(made.wire)
    if is_server_first:  # in another block
        parts.sort(key=lambda part: part[0] != SERVER)
    session, texts = decrypted(parts, KeyLog(other_sessions(50) + made.keys + other_sessions(9)))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert session.problems == []


@pytest.mark.parametrize("is_server_first", [False, True])
def test_a_client_hello_is_found_with_the_finished_of_either_end(folder, is_server_first):
    """That of the server is lost: then no key opens its first encrypted record in the capture."""
    made = talk(folder, contexts(folder, "TLSv1_2"), MESSAGES[:4])
    _, *parts = placed(made.wire)
    parts.remove([part for part in parts if part[0] == SERVER][1])
    if is_server_first:
        parts.sort(key=lambda part: part[0] != SERVER)
    _, texts = decrypted(parts, KeyLog(made.keys))
    assert [b"".join(each) for each in texts] == [made.plain[CLIENT], made.plain[SERVER]]


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("size", [20, 90])
def test_a_client_hello_whose_begin_is_lost(folder, version, size):
    """The unencrypted messages behind it are no encrypted ones."""
    made = talk(folder, contexts(folder, version), MESSAGES[:4])
    for count in range(1, len(made.wire[0][1]) // size + 1):
        hello = (CLIENT, size * count, made.wire[0][1][size * count :])
        _, texts = decrypted([hello, *placed(made.wire)[1:]], KeyLog(made.keys))
        assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


def test_a_lost_client_hello_whose_secret_is_logged_late(made):
    keys = KeyLog(other_sessions(5), grows=True)
    session, texts = TlsSession(keys), no_texts()
    feed(session, placed(made.wire)[1:], texts)
    assert texts == no_texts()
    keys.add(made.keys)
    take(session.read(last=True), texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


def test_a_search_begins_at_the_session_that_was_read_last_and_is_limited(monkeypatch):
    sessions = [number.to_bytes(32) for number in range(9)]
    line = b"CLIENT_RANDOM %s " + b"ab" * 48 + b"\n"
    monkeypatch.setattr(keylog, "CANDIDATES", 4)
    monkeypatch.setattr(keylog, "ATTEMPTS", 20)
    keys = KeyLog(b"".join(line % session.hex().encode() for session in sessions))
    for latest, numbers in ((0, [0, 1, 2, 3]), (5, [5, 4, 6, 3]), (8, [8, 7, 6, 5])):
        keys.latest = sessions[latest]
        assert [*keys.candidates(0)] == [sessions[number] for number in numbers]
    assert [*keys.candidates(7)] == sessions[7:]
    assert len([*keys.candidates(0)]) == 4
    assert len([*keys.candidates(0)]) == 2
    assert [*keys.candidates(0)] == []


def by_session_id(made: Dialogue) -> KeyLog:
    """The secret in the form that needs both hellos."""
    hello = next(data for end, data in made.wire if end == SERVER)
    session_id, secret = hello[44 : 44 + hello[43]], made.keys.split()[-1]
    return KeyLog(b"RSA Session-ID:%s Master-Key:%s\n" % (session_id.hex().encode(), secret))


@pytest.mark.parametrize("lost", [50, 100])
def test_a_client_hello_whose_end_is_lost(folder, lost):
    """Post-quantum key shares and tickets make it longer than a packet."""
    both = contexts(folder, "TLSv1_2")
    both[1].options |= ssl.OP_NO_TICKET
    made = talk(folder, both, MESSAGES[:4])
    parts = [part for part in placed(made.wire, 50) if part[:2] != (CLIENT, lost)]
    session, texts = decrypted(parts, by_session_id(made))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert session.facts.version == "1.2"


def joined(flight: bytes) -> bytes:
    """The handshake records of a flight as one, as Java sends them."""
    bodies, at = b"", 0
    while at < len(flight):
        size = int.from_bytes(flight[at + 3 : at + 5])
        bodies += flight[at + 5 : at + 5 + size]
        at += 5 + size
    return flight[:3] + len(bodies).to_bytes(2) + bodies


def test_a_lost_change_cipher_spec_of_the_client_before_the_server_hello_is_read(folder):
    """Java sends it in its own segment. A block may have the client's segments first."""
    made = talk(folder, contexts(folder, "TLSv1_2"), MESSAGES[:4])
    session = TlsSession(KeyLog(made.keys))
    for end, at, data in sorted(placed(made.wire), key=lambda part: part[0]):
        lost = data.find(b"\x14\3\3\0\1\1") if end == CLIENT else -1
        for begin, size in ((0, lost), (lost + 6, None)) if lost >= 0 else ((0, None),):
            session.feed(end, at + begin, data[begin:size], (0, 0, 0))
    texts = no_texts()
    take(session.read(last=True), texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


def divided(flight: bytes, size: int) -> bytes:
    """The handshake records of a flight as records of `size` bytes, as maximum fragment lengths
    make them (RFC 6066, section 4)."""
    body = joined(flight)[5:]
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(flight[:3] + len(part).to_bytes(2) + part for part in parts)


def test_a_lost_part_of_a_certificate_in_many_records(folder):
    """The unencrypted records behind it are no encrypted ones, although ChangeCipherSpec may be
    lost, too."""
    made = talk(folder, contexts(folder, "TLSv1_2"), MESSAGES[:4])
    at = next(at for at, (end, _) in enumerate(made.wire) if end == SERVER)
    made.wire[at] = SERVER, divided(made.wire[at][1], 8)
    parts = [part for part in placed(made.wire, 130) if part[:2] != (SERVER, 260)]
    session, texts = decrypted(parts, KeyLog(made.keys))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert session.problems == []


@pytest.mark.parametrize("lost", [200, 400, 600, 1000])
def test_a_server_hello_in_a_record_whose_end_is_lost(folder, lost):
    made = talk(folder, contexts(folder, "TLSv1_2"), MESSAGES[:4])
    at = next(at for at, (end, _) in enumerate(made.wire) if end == SERVER)
    made.wire[at] = SERVER, joined(made.wire[at][1])
    assert len(made.wire[at][1]) > 1000
    parts = [part for part in placed(made.wire, 200) if part[:2] != (SERVER, lost)]
    session, texts = decrypted(parts, KeyLog(made.keys))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert {trouble.kind for trouble in session.problems} <= {"tls_lost_records"}


def test_secrets_that_are_logged_late_behind_a_lost_server_hello(folder):
    """The hello and all handshake records of the server are lost."""
    made = talk(folder, contexts(folder, "TLSv1_3"), MESSAGES[:4])
    lost = next(part for part in placed(made.wire) if part[0] == SERVER)
    lines = [line for line in made.keys.splitlines(keepends=True) if b"HANDSHAKE" in line]
    keys = KeyLog(b"".join(lines), grows=True)
    session, texts = TlsSession(keys), no_texts()
    feed(session, [part for part in placed(made.wire) if part != lost], texts)
    keys.add(made.keys)
    take(session.read(last=True), texts)
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]


@needs_openssl
@pytest.mark.parametrize("cipher", ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"])
@pytest.mark.parametrize("is_flight", [False, True])
def test_tls_1_3_is_read_without_its_server_hello(folder, cipher, is_flight):
    """Lost alone, or with all that the server sends before its Finished."""
    made = by_command_line(folder, ["-tls1_3"], ["-ciphersuites", cipher], ["hello", "again"])
    flight = next(data for end, data in made.wire if end == SERVER)
    size = len(flight) if is_flight else 5 + int.from_bytes(flight[3:5])
    parts = [
        (end, max(at, size), data[size - at :]) if end == SERVER and at < size else (end, at, data)
        for end, at, data in placed(made.wire)
    ]
    session, texts = decrypted(parts, KeyLog(made.keys))
    assert texts == [[made.plain[CLIENT]], [made.plain[SERVER]]]
    assert (session.facts.version, session.facts.cipher) == ("1.3", cipher)
    assert {each.kind for each in session.problems} <= {"tls_cut_record"}


@pytest.mark.parametrize("has_begin", [False, True])
def test_the_problem_names_a_lost_server_hello(folder, has_begin):
    """The server's next record is its encrypted Finished, which is no handshake message.

    `has_begin`: the position of the first byte is known, as the segment with SYN is not lost.
    """
    both = contexts(folder, "TLSv1_2")
    for _ in range(8):  # random bytes may have the size of a message
        made = talk(folder, both, MESSAGES[:4])
        parts = placed(made.wire)
        lost = next(part for part in parts if part[0] == SERVER)
        base = 0 if has_begin else len(lost[2])
        left = [
            (end, at - base if end == SERVER else at, data)
            for end, at, data in parts
            if (end, at, data) != lost
        ]
        session, _ = decrypted(left, KeyLog(made.keys))
        details = {each.detail for each in session.problems}
        assert details == {"not decrypted: its ServerHello is not in the capture"}


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_older_versions_are_a_problem(folder, version):
    made = talk(folder, contexts(folder, version), MESSAGES[:2])
    session, texts = decrypted(placed(made.wire), KeyLog(made.keys))
    assert texts == no_texts()
    assert [trouble.kind for trouble in session.problems] == ["tls_unsupported"]


def test_a_record_knows_when_its_last_byte_came():
    reader = RecordReader()
    reader.feed(0, b"\x17\x03\x03\x00", (1, 0, 1))
    assert reader.peek() is None
    reader.feed(4, b"\x02a", (2, 0, 2))
    reader.feed(6, b"b\x17\x03", (3, 0, 3))
    record = reader.peek()
    assert record is not None
    assert (record.body, record.at, record.arrival) == (b"ab", 0, (3, 0, 3))

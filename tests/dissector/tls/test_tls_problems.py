"""Problems of sessions: failed handshakes, and why nothing is decrypted."""

import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from dissector.tls import KeyLog
from dissector.tls.session import TlsSession
from tests.dissector.tls.decrypting import (
    MESSAGES,
    Part,
    decrypted,
    no_texts,
    other_sessions,
    placed,
)
from tests.dissector.tls.tls_made import CLIENT, SERVER, Contexts, Dialogue, contexts, talk


class Attempt:
    """A handshake that may fail: of a client that trusts no server, or lacks its version."""

    def __init__(self, folder: Path, both: Contexts) -> None:
        self.made = Dialogue()
        self.pipes = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
        self.ends = [
            context.wrap_bio(*pipe, server_side=end == SERVER)
            for end, (context, pipe) in enumerate(zip(both, self.pipes, strict=True))
        ]
        for end in (CLIENT, SERVER) * 3:
            self.act(end, self.ends[end].do_handshake)
        self.made.keys = (folder / "keys.log").read_bytes()

    def act(self, end: int, action: Callable[[], object]) -> None:
        """Let an end act, and carry its bytes."""
        with contextlib.suppress(ssl.SSLError):
            action()
        if data := self.pipes[end][1].read():
            self.made.wire.append((end, data))
            self.pipes[1 - end][0].write(data)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_an_alert_after_data_is_not_a_failed_handshake(folder, version):
    attempt = Attempt(folder, contexts(folder, version))
    server = attempt.ends[SERVER]
    attempt.act(SERVER, lambda: server.write(b"data"))
    attempt.pipes[SERVER][0].write(b"\x17\3\3\0\x20" + bytes(32))  # does not decrypt
    attempt.act(SERVER, server.read)
    session, texts = decrypted(placed(attempt.made.wire), KeyLog(attempt.made.keys))
    assert texts == [[b""], [b"data"]]
    details = [(problem.kind, problem.detail) for problem in session.problems]
    assert details == [("tls_aborted", "TLS failed: alert bad_record_mac after data")]


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
    made = Attempt(folder, (client, server)).made
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


def test_secrets_without_those_of_the_handshake(folder):
    made = talk(folder, contexts(folder, "TLSv1_3"), MESSAGES[:2])
    lines = made.keys.splitlines(keepends=True)
    session, _ = decrypted(
        placed(made.wire), KeyLog(b"".join(each for each in lines if b"HANDSHAKE" not in each))
    )
    details = [problem.detail for problem in session.problems]
    assert details == ["not decrypted: the key log lacks its handshake secrets"]


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


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_older_versions_are_a_problem(folder, version):
    made = talk(folder, contexts(folder, version), MESSAGES[:2])
    session, texts = decrypted(placed(made.wire), KeyLog(made.keys))
    assert texts == no_texts()
    assert [trouble.kind for trouble in session.problems] == ["tls_unsupported"]

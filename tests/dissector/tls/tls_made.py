"""TLS connections made by OpenSSL: by Python's ssl module in memory, or by its command line."""

from __future__ import annotations

import contextlib
import datetime
import select
import socket
import ssl
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

CLIENT, SERVER = 0, 1
HANDSHAKE = (CLIENT, SERVER, CLIENT, SERVER)
"""The turns of a handshake: tickets of TLS 1.3 are the last one (RFC 8446, 4.6.1)."""
RETRIED = (CLIENT, SERVER, *HANDSHAKE)
"""The turns of a handshake with a HelloRetryRequest."""
LONGEST, QUIET = 180, 0.05
"""Seconds: the longest wait for a turn, and the silence after the last turn."""
COMMANDS = ("K", "k", "R")
"""Lines that openssl s_client does not send: they change keys, or renegotiate."""
NO_ENCRYPT_THEN_MAC = 1 << 19
"""OpenSSL's SSL_OP_NO_ENCRYPT_THEN_MAC."""

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@dataclass
class Dialogue:
    """The data on the wire in order, with its end; the plain text of each end; the secrets."""

    wire: list[tuple[int, bytes]] = field(default_factory=list)
    plain: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    keys: bytes = b""
    session: ssl.SSLSession | None = None


def certificate(folder: Path, kind: str = "RSA") -> Path:
    """A file with a key, RSA or EC, and its certificate."""
    path = folder / f"{kind}.pem"
    if path.exists():
        return path
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    key = ec.generate_private_key(ec.SECP256R1())
    if kind == "RSA":
        key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    begin = datetime.datetime(2020, 1, 1)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=36500))
    )
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    return path


def contexts(folder: Path, version: str, ciphers: str = "", kind: str = "RSA") -> Contexts:
    """A client and a server that speak one version, and log their secrets."""
    client, server = (
        ssl.SSLContext(side) for side in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)
    )
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    server.load_cert_chain(certificate(folder, kind))
    client.keylog_filename = str(folder / "keys.log")
    for context in (client, server):
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
        context.set_ciphers(f"{ciphers or 'ALL'}:@SECLEVEL=0")
        context.set_alpn_protocols(["kafka"])
    return client, server


def talk(
    folder: Path, both: Contexts, messages: list[tuple[int, bytes]], *,
    session: ssl.SSLSession | None = None,
) -> Dialogue:  # fmt: skip
    """A handshake, and these messages."""
    made = Dialogue()
    pipes = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in range(2)]
    ends = (
        both[0].wrap_bio(*pipes[0], server_hostname="broker.test", session=session),
        both[1].wrap_bio(*pipes[1], server_side=True),
    )

    def carry() -> None:
        for end in (CLIENT, SERVER):
            if data := pipes[end][1].read():
                made.wire.append((end, data))
                pipes[1 - end][0].write(data)

    def attempt(action: Callable[[], object]) -> object:
        try:
            return action()
        except ssl.SSLWantReadError:
            return None

    for _ in range(6):
        for end in ends:
            attempt(end.do_handshake)
            carry()
    for end, data in messages:
        ends[end].write(data)
        made.plain[end].extend(data)
        carry()
        got = bytearray()
        while len(got) < len(data):
            got += ends[1 - end].read(len(data))
        assert got == data
        attempt(lambda end=end: ends[end].read(1))  # tickets
    made.session = ends[0].session
    made.keys = (folder / "keys.log").read_bytes()
    return made


def by_command_line(
    folder: Path, server: list[str], client: list[str], lines: list[str]
) -> Dialogue:
    """openssl s_client speaks lines to openssl s_server, which answers each of them reversed."""
    keys = folder / "cli.log"
    made = Dialogue()
    with (
        _serving(folder, ["-quiet", *server]) as (port, answer),  # no line is a command
        _speaking(port, keys, client) as (near, far, write),
    ):
        _relay(near, far, made, HANDSHAKE)
        for line in lines:
            write(line)
            _relay(near, far, made, (CLIENT,))
            if line not in COMMANDS:
                answer(line[::-1])
                _relay(near, far, made, (SERVER,))
                made.plain[CLIENT].extend(line.encode() + b"\n")
                made.plain[SERVER].extend(line[::-1].encode() + b"\n")
    made.keys = keys.read_bytes()
    return made


def with_early_data(
    folder: Path, server: list[str], early: bytes, times: int, turns: Sequence[int] = HANDSHAKE
) -> list[Dialogue]:
    """Connections that resume one session, each with early data, and a line from both ends.

    `plain` has the early data, too, whether the server read it or not.
    """
    keys, session, sent = (folder / name for name in ("early.log", "session.pem", "early.bin"))
    sent.write_bytes(early)
    resume = ["-tls1_3", "-sess_in", str(session), "-early_data", str(sent)]
    all_made = []
    with _serving(folder, ["-tls1_3", "-early_data", *server]) as (port, answer):
        with _speaking(port, keys, ["-tls1_3", "-sess_out", str(session)]) as (near, far, write):
            _relay(near, far, Dialogue(), turns)
            write("Q")  # the server forgets sessions that end without close_notify
            _relay(near, far, Dialogue(), (CLIENT,))
        for _ in range(times):
            made = Dialogue(plain=(bytearray(early), bytearray()))
            with _speaking(port, keys, resume) as (near, far, write):
                _relay(near, far, made, turns)
                for end, speak in ((CLIENT, write), (SERVER, answer)):
                    speak("a line")
                    made.plain[end].extend(b"a line\n")
                    _relay(near, far, made, (end,))
            all_made.append(made)
    for made in all_made:
        made.keys = keys.read_bytes()
    return all_made


_SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
Write = Callable[[str], None]


@contextlib.contextmanager
def _serving(folder: Path, arguments: list[str]) -> Iterator[tuple[int, Write]]:
    """openssl s_server: its port, and a function that makes it send a line."""
    pem = certificate(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["openssl", "s_server", "-accept", str(port), "-cert", pem, "-key", pem, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, **_SILENT)
    with _ending(process) as write:
        yield port, write


@contextlib.contextmanager
def _speaking(
    port: int, keys: Path, arguments: list[str]
) -> Iterator[tuple[socket.socket, socket.socket, Write]]:
    """openssl s_client: its input, its output, and a function that makes it send a line."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(LONGEST)
    name, to = "broker.test", f"127.0.0.1:{listener.getsockname()[1]}"
    process = subprocess.Popen(
        ["openssl", "s_client", "-connect", to, "-servername", name, "-keylogfile", keys,
         *arguments],
        stdin=subprocess.PIPE, text=True, **_SILENT,
    )  # fmt: skip
    with listener, _ending(process) as write:
        near = listener.accept()[0]
        with near, _connect(port) as far:
            yield near, far, write


@contextlib.contextmanager
def _ending(process: subprocess.Popen[str]) -> Iterator[Write]:
    """A function that makes a process send a line, until the process ends."""

    def write(line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()

    try:
        yield write
    finally:
        process.kill()
        process.communicate()


def _connect(port: int) -> socket.socket:
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), timeout=LONGEST)
        time.sleep(0.05)
    raise AssertionError("openssl s_server does not answer")


def _relay(near: socket.socket, far: socket.socket, made: Dialogue, turns: Sequence[int]) -> None:
    """Carry bytes until both ends have taken their turns, and nothing came for a while."""
    sockets = {near: (CLIENT, far), far: (SERVER, near)}
    left = list(turns)
    while ready := select.select(list(sockets), [], [], LONGEST if left else QUIET)[0]:
        for each in ready:
            end, other = sockets[each]
            data = each.recv(1 << 16)
            if not data:
                return
            made.wire.append((end, data))
            other.sendall(data)
            if left[:1] == [end]:
                left.pop(0)

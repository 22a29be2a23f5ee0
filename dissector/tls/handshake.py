"""What the ends of one connection agree on: hellos, cipher suite, key schedule and early data.

A hello may be lost, except for the ServerHello of TLS 1.2: `schedule` finds what it contained.

Methods take the key log, since a session may move to a process with another one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from dissector.errors import DecodeError
from dissector.tls.certificates import subject
from dissector.tls.events import TlsFacts
from dissector.tls.hellos import (
    ClientHello,
    ServerHello,
    client_hello,
    encrypted_extensions,
    server_hello,
    truncated_client_hello,
)
from dissector.tls.keylog import KeyLog
from dissector.tls.record_layer import APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, TlsRecord
from dissector.tls.schedule import TLS_1_2, TLS_1_3, Schedule, find_client_hello, find_server_hello
from dissector.tls.side import Side
from dissector.tls.suites import name_of, suite

if TYPE_CHECKING:
    from dissector.tls.protection import Opener

CLIENT_HELLO, SERVER_HELLO = 1, 2
"""Types of handshake messages (RFC 8446, section 4)."""
_ENCRYPTED_EXTENSIONS, _CERTIFICATE = 8, 11
VERSIONS = {0x0300: "SSL 3.0", 0x0301: "1.0", 0x0302: "1.1", TLS_1_2: "1.2", TLS_1_3: "1.3"}


class Handshake:
    """The handshake of one connection."""

    def __init__(self) -> None:
        self.facts = TlsFacts()
        self.hello: ClientHello | None = None
        self.lacks_hello = False
        """Whether the ClientHello is lost; then the key log may show it."""
        self.chosen: ServerHello | None = None
        self.accepts_early: bool | None = None
        """Whether the server accepts early data; None if unknown."""
        self._schedule: Schedule | None = None
        self._tried = [0, 0]
        """By end: secrets, or sessions, that the key log had when its record was tried for a hello.
        If the first encrypted record of one end is lost, that of the other end decides."""

    @property
    def is_1_3(self) -> bool:
        return self.chosen is not None and self.chosen.version == TLS_1_3

    @property
    def offers_early(self) -> bool:
        """Whether the client may have sent early data."""
        return self.is_1_3 and self.hello is not None and self.hello.early_data

    @property
    def unsupported(self) -> str | None:
        """Why the server's choice cannot be decrypted; None if it can, or is unknown."""
        if self.chosen is None:
            return None
        if self.chosen.version not in (TLS_1_2, TLS_1_3):
            return f"TLS {self.facts.version} is older than 1.2"
        if suite(self.chosen.cipher) is None:
            return f"unsupported cipher {self.facts.cipher}"
        return "it is compressed" if self.chosen.compression else None

    @property
    def schedule(self) -> Schedule | None:
        """The keys; None until both hellos are known."""
        if self._schedule is None and self.hello is not None and self.chosen is not None:
            parts = suite(self.chosen.cipher)
            if parts is not None:
                self._schedule = Schedule(self.hello.random, self.chosen, parts)
        return self._schedule

    def read(self, side: Side, kind: int, body: bytes) -> None:
        """Read a handshake message of an end; those without facts or keys are ignored."""
        if kind == CLIENT_HELLO and side.is_client:
            self.hello = client_hello(body)
            self.facts.sni = self.hello.sni
        elif kind == SERVER_HELLO and not side.is_client and side.epoch == 0:
            hello = server_hello(body)
            if not hello.is_retry:
                self._choose(hello)
        elif kind == _CERTIFICATE and not side.is_client and side.epoch == 0:
            with suppress(DecodeError):  # the certificate is damaged, and not needed
                self.facts.subject = subject(body)
        elif self.is_1_3 and kind == _ENCRYPTED_EXTENSIONS and not side.is_client:
            self.facts.alpn, self.accepts_early = encrypted_extensions(body)

    def read_truncated(self, side: Side) -> None:
        """Read the ClientHello from the first bytes of its message, as the others are lost."""
        if self.hello is None and side.is_client:
            self.hello = truncated_client_hello(side.messages)
            self.lacks_hello = self.hello is None

    def _choose(self, hello: ServerHello) -> None:
        self.chosen = hello
        self.facts.version = VERSIONS.get(hello.version, f"0x{hello.version:04X}")
        self.facts.cipher = name_of(hello.cipher)
        self.facts.alpn = hello.alpn

    def find_server_hello(self, keys: KeyLog, side: Side, record: TlsRecord) -> bool:
        """Find the server's choice in TLS 1.3, with an encrypted record of an end."""
        if self.hello is None or self._tried[side.end] == keys.size:
            return False
        self._tried[side.end] = keys.size
        hello = find_server_hello(keys, self.hello.random, side, record)
        if hello is not None:
            self._choose(hello)
        return hello is not None

    def find_client_hello(self, keys: KeyLog, side: Side, record: TlsRecord) -> bool:
        """Find the client's random, with the first encrypted record of an end."""
        parts = None if self.chosen is None else suite(self.chosen.cipher)
        if self.chosen is None or parts is None:
            return False
        since, self._tried[side.end] = self._tried[side.end], len(keys.sessions)
        self.hello = find_client_hello(keys, self.chosen, parts, side, record, since)
        return self.hello is not None

    def is_protected(self, side: Side, record: TlsRecord) -> bool:
        """Whether this record of an unencrypted end begins its first epoch."""
        if self.chosen is None:
            return False
        if record.content == APPLICATION_DATA:
            return True
        if self.is_1_3:
            return False  # ChangeCipherSpec has no meaning there (RFC 8446, appendix D.4)
        # If ChangeCipherSpec was lost, only an attempt to decrypt decides.
        was_lost = side.reader.lost_at is not None and self.hello is not None
        has_changed = side.has_changed_cipher or record.content == CHANGE_CIPHER_SPEC
        return has_changed or (was_lost and record.content == HANDSHAKE)

    def following(self, keys: KeyLog, side: Side) -> tuple[Opener, bytes] | None:
        """Opener and secret of the next epoch of an end."""
        if self.schedule is None or not keys.is_given:
            return None
        return self.schedule.following(keys, side, side.epoch, side.secret)

    def begin(self, keys: KeyLog, side: Side, opposite: Side) -> bool:
        """Enter early data or the first epoch; False if the record must stay buffered."""
        if not (side.is_client and self.offers_early):
            return self.advance(keys, side)
        if self.accepts_early is None and opposite.epoch < 2:
            return False
        if self.accepts_early and self.schedule is not None:
            side.opener = self.schedule.early(keys)
        side.passes_early = side.opener is None
        return side.opener is not None or self.advance(keys, side)

    def advance(self, keys: KeyLog, side: Side) -> bool:
        """Enter the next epoch of an end; False if its key is unknown."""
        following = self.following(keys, side)
        if following is not None and self.hello is not None:
            keys.latest = self.hello.random
            side.enter(*following, side.epoch + 1)
        return following is not None

"""Secrets of TLS sessions in the format of key logs (RFC 9850, the NSS key log format).

A line has a label, the client random that identifies the session, and the secret; the last two are
hexadecimal. Java agents log TLS 1.2 in another form: the session id of the ServerHello, and the
master secret. Lines of other forms are ignored. A log may grow.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Iterator

from dissector.tls.hellos import RANDOM_BYTES

MASTER, EARLY = "CLIENT_RANDOM", "CLIENT_EARLY_TRAFFIC_SECRET"
EPOCHS = "HANDSHAKE_TRAFFIC_SECRET", "TRAFFIC_SECRET_0"
"""Labels of the secrets of TLS 1.2, and of early data; and of the first epochs of TLS 1.3, without
the end."""
LABELS = (MASTER, EARLY, *(f"{end}_{epoch}" for end in ("CLIENT", "SERVER") for epoch in EPOCHS))
"""Labels of secrets that decrypt; a log may have others."""
SESSION_ID = "RSA Session-ID:"
"""Label of secrets by session id, which the Java agent extract-tls-secrets writes."""
_BOM = rb"^(?:\xef\xbb\xbf)?"
"""Begin of a line; editors on Windows put a byte order mark before the first one."""
_LINE = re.compile(
    _BOM
    + rb"(%b)" % "|".join((*LABELS, SESSION_ID)).encode()
    + rb" ?([0-9a-fA-F]{64}|(?:[0-9a-fA-F]{2}){1,31}) "
    rb"(?:Master-Key:)?([0-9a-fA-F]{64}(?:[0-9a-fA-F]{32})?)[\s\0]*$",
    re.M,
)
"""The secret has 48 bytes, or those of a hash: 32 or 48. Secrets in a pcapng may end with NUL."""
_ANY_LINE = re.compile(
    _BOM
    + rb"(?:[A-Z][A-Z0-9_]* |RSA Session-ID:)[0-9a-fA-F]+ (?:Master-Key:)?[0-9a-fA-F]+[\s\0]*$",
    re.M,
)
"""Also with a label that is not used for decryption."""
CANDIDATES = 2048
"""Sessions that are tried for a connection without its ClientHello: about 0.1 s."""
ATTEMPTS = 1 << 16
"""Sessions that are tried for all of these connections: about 4 s."""


def may_be_key_log(text: bytes) -> bool:
    """Whether a file that begins with `text` has a line of a key log, or may still get one: until
    then it has comments and an incomplete line."""
    *complete, _ = text.split(b"\n")
    has_others = any(line.strip() and not line.startswith(b"#") for line in complete)
    return _ANY_LINE.search(text) is not None or not (has_others or b"\0" in text)


class KeyLog:
    """Secrets by label, and client random or session id."""

    def __init__(self, text: bytes = b"", *, grows: bool = False) -> None:
        """`grows`: the log may grow, so it counts as given even while it is empty."""
        self._secrets: dict[bytes, bytes] = {}  # a log may have a million: no tuples as keys
        self._grows = grows
        self._sessions: list[bytes] = []  # see `sessions`
        self._attempts = ATTEMPTS
        self.latest = b""
        """Client random of the session whose secrets were used last."""
        self.add(text)

    @property
    def is_given(self) -> bool:
        """Whether there are secrets, or may be."""
        return self._grows or bool(self._secrets)

    def add(self, text: bytes) -> None:
        """Add lines. If the last one is incomplete, add it again when it is complete."""
        self._sessions = []
        for line in _LINE.finditer(text.replace(b"\r", b"\n")):
            label, identity, secret = line.groups()
            self._secrets[label + unhexlify(identity)] = unhexlify(secret)

    def find(self, label: str, identity: bytes, size: int) -> bytes | None:
        """The secret of `size` bytes with this label, of the session with client random `identity`;
        its session id if the label is `SESSION_ID`.

        An incomplete line may have a secret with fewer bytes.
        """
        secret = self._secrets.get(label.encode("ascii") + identity, b"")
        return secret if len(secret) == size else None

    def has_session(self, random: bytes) -> bool:
        """Whether there is a secret of the session with this client random."""
        return any(label.encode("ascii") + random in self._secrets for label in LABELS)

    @property
    def size(self) -> int:
        """Number of secrets."""
        return len(self._secrets)

    @property
    def sessions(self) -> list[bytes]:
        """Client randoms of the sessions, in the order of the log."""
        if not self._sessions:
            by_session_id = SESSION_ID.encode("ascii")
            keys = (key for key in self._secrets if not key.startswith(by_session_id))
            self._sessions = list(dict.fromkeys(key[-RANDOM_BYTES:] for key in keys))
        return self._sessions

    def candidates(self, since: int) -> Iterator[bytes]:
        """Client randoms that may be that of a connection: those after the first `since` sessions.

        If `since` is 0, the nearest to `latest`: the sessions of a capture are close to each other.
        """
        sessions = self.sessions
        at = sessions.index(self.latest) if self.latest in sessions else 0
        near = range(max(at - CANDIDATES, 0), min(at + CANDIDATES, len(sessions)))
        order = sorted(near, key=lambda index: abs(index - at))[:CANDIDATES]
        for index in range(since, len(sessions)) if since else order:
            if self._attempts == 0:
                return
            self._attempts -= 1
            yield sessions[index]

"""The secrets of TLS sessions, as clients and servers log them (RFC 9850, the NSS key log format).

A line has a label, the client random that names the session, and the secret, the last two in hex.
Other lines say nothing to us. A log may grow: text is added piece by piece, wherever it was cut.
"""

from __future__ import annotations

import re

LONGEST = 512
"""Bytes of a line; of a longer one the end alone is kept, which says nothing."""

_LINE = re.compile(rb"^([A-Z][A-Z0-9_]*) ([0-9a-fA-F]{64}) ((?:[0-9a-fA-F]{2}){16,64})\s*$", re.M)


class KeyLog:
    """Secrets by label and client random."""

    def __init__(self, text: bytes = b"", *, grows: bool = False) -> None:
        """`grows`: more is to come, so that it counts as given though nothing is in it yet."""
        self._secrets: dict[tuple[str, bytes], bytes] = {}
        self._rest = b""
        self._grows = grows
        self.add(text)

    @property
    def is_given(self) -> bool:
        """Whether anybody has secrets at all."""
        return self._grows or bool(self._secrets)

    def add(self, text: bytes) -> None:
        """More of the log; its last line is read when it is complete."""
        lines, newline, rest = (self._rest + text).rpartition(b"\n")
        self._rest = rest[-LONGEST:]
        for label, random, secret in _LINE.findall(lines + newline):
            key = label.decode("ascii"), bytes.fromhex(random.decode("ascii"))
            self._secrets[key] = bytes.fromhex(secret.decode("ascii"))

    def find(self, label: str, random: bytes) -> bytes | None:
        """The secret of the session with that client random."""
        return self._secrets.get((label, random))

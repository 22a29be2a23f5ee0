"""Secrets of TLS sessions in the format of key logs (RFC 9850, the NSS key log format).

A line has a label, the client random that identifies the session, and the secret; the last two are
hexadecimal. Lines of other forms are ignored. A log may grow: text is added in arbitrary pieces.
"""

from __future__ import annotations

import re

LONGEST = 512
"""Longest line in bytes; only the end of a longer line is kept, which is then ignored."""

_LINE = re.compile(rb"^([A-Z][A-Z0-9_]*) ([0-9a-fA-F]{64}) ((?:[0-9a-fA-F]{2}){16,64})\s*$", re.M)


_ANY_LINE = re.compile(rb"^[A-Z][A-Z0-9_]* [0-9a-fA-F]+ [0-9a-fA-F]+\s*$", re.M)
"""Also with a label that is not used for decryption."""


def may_be_key_log(text: bytes) -> bool:
    """Whether a file that begins with `text` has a line of a key log, or may still get one: until
    then it has comments and an incomplete line."""
    *complete, _ = text.split(b"\n")
    has_others = any(line.strip() and not line.startswith(b"#") for line in complete)
    return _ANY_LINE.search(text) is not None or not (has_others or b"\0" in text)


class KeyLog:
    """Secrets by label and client random."""

    def __init__(self, text: bytes = b"", *, grows: bool = False) -> None:
        """`grows`: the log may grow, so it counts as given even while it is empty."""
        self._secrets: dict[tuple[str, bytes], bytes] = {}
        self._incomplete = b""
        self._grows = grows
        self.add(text)

    @property
    def is_given(self) -> bool:
        """Whether there are secrets, or may be."""
        return self._grows or bool(self._secrets)

    def add(self, text: bytes) -> None:
        """Add text; the last line is parsed when it is complete."""
        lines, newline, incomplete = (self._incomplete + text).rpartition(b"\n")
        self._incomplete = incomplete[-LONGEST:]
        for label, random, secret in _LINE.findall(lines + newline):
            key = label.decode("ascii"), bytes.fromhex(random.decode("ascii"))
            self._secrets[key] = bytes.fromhex(secret.decode("ascii"))

    def find(self, label: str, random: bytes) -> bytes | None:
        """The secret with this label of the session with client random `random`."""
        return self._secrets.get((label, random))

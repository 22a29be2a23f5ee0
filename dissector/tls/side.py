"""One end of a TLS connection: its records, epoch, and handshake messages.

A record authenticates with its number in the epoch. After lost records, the next numbers are tried,
as many as records fit into the lost bytes: the number that opens the record gives the number of
lost records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from dissector.arrays import mutable
from dissector.errors import DecodeError
from dissector.tls.record_layer import Arrival, RecordReader, TlsRecord

if TYPE_CHECKING:
    from dissector.tls.protection import Opener

NUMBERS = 64
"""Numbers that are tried for any record. Each record that opens allows as many later attempts."""
ATTEMPTS = 1 << 17
"""Attempts beyond these, of an end: about a second if all of them fail, as after crafted holes."""
SMALLEST = 22
"""Bytes of a record with one byte of data (RFC 8446, section 5.2), except with CCM_8."""
MESSAGE_LIMIT = 1 << 18
"""Longest handshake message in bytes; certificates are the longest."""


@mutable
class Side:
    """One end."""

    end: int
    is_client: bool = False
    """Whether it sent the ClientHello; not known at first."""
    reader: RecordReader = field(default_factory=RecordReader)
    messages: bytearray = field(default_factory=bytearray)
    """An incomplete handshake message."""
    clear_until: int = 0
    """Position after its last unencrypted record."""
    is_late: bool = False
    """Whether an unencrypted record was read that is not its first one, which has its hello."""
    epoch: int = 0
    """0 is unencrypted; in TLS 1.3, 1 is the handshake."""
    opener: Opener | None = None
    """In epoch 0, of early data."""
    secret: bytes = b""
    sequence: int = 0
    """Number of the next record in its epoch."""
    position: int = 0
    """Position of the next plaintext."""
    attempts: int = ATTEMPTS
    """Remaining attempts beyond `NUMBERS` for a record."""
    rejects: int = 0
    is_misfit: bool = False
    """Whether no record of an epoch opens, nor the first one, before which no byte is missing."""
    is_ending: bool = False
    """Whether its last record ended an epoch, and the key log lacks the secret of the next one."""
    is_given_up: bool = False
    protected_since: Arrival | None = None
    """Arrival of its first encrypted record, in a handshake without keys."""
    has_changed_cipher: bool = False
    """Whether its next record is the first encrypted one of TLS 1.2."""
    passes_early: bool = False
    """Whether it may begin with early data that must be skipped."""
    passed_early: bool = False
    """Whether early data was skipped."""
    missed: bool = False
    """Whether plaintext is missing before the next one."""

    @property
    def may_be_early(self) -> bool:
        """Whether records that do not open may be early data, which has a separate key."""
        return self.passes_early and self.epoch == 1 and self.sequence == 0

    def enter(self, opener: Opener, secret: bytes, epoch: int) -> None:
        """Enter a later epoch."""
        self.opener, self.secret, self.epoch = opener, secret, epoch
        self.sequence = 0
        self.is_ending = self.has_changed_cipher = False
        self.messages.clear()

    def attempt(
        self, record: TlsRecord, opener: Opener, first: int
    ) -> tuple[int, tuple[int, bytes] | None]:
        """The number, from `first` on, that opens a record; and content type and plaintext."""
        lost_at = self.reader.lost_at
        lost = 0 if lost_at is None else record.at - lost_at
        count = NUMBERS + min(lost // SMALLEST, self.attempts)
        for sequence in range(first, first + count):
            opened = opener.open(record, sequence)
            if opened is not None:
                break
        self.attempts -= max(sequence - first - NUMBERS, 0)
        return sequence, opened

    def note_opened(self) -> None:
        """A record was opened: the next ones may fail again."""
        self.is_misfit, self.rejects = False, 0
        self.attempts = min(self.attempts + NUMBERS, ATTEMPTS)

    def handshake_messages(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Kind and body of the complete messages, with `data`; an incomplete one stays."""
        pending = self.messages
        pending += data
        while len(pending) >= 4:
            size = 4 + int.from_bytes(pending[1:4], "big")
            if size > MESSAGE_LIMIT:
                raise DecodeError("a TLS handshake message is too long", offset=0)
            if len(pending) < size:
                return
            kind, body = pending[0], bytes(pending[4:size])
            del pending[:size]
            yield kind, body

"""The key schedule: selects the next secret of a connection from the key log, and opens records.

In TLS 1.2 the keys of both ends derive from one secret (RFC 5246, section 6.3). In TLS 1.3 each end
has a handshake secret and a traffic secret, from which the next traffic secrets derive. A client
that sends early data has a secret for it too (RFC 8446, section 7.1). A key log may be written
late: a missing secret may be present at the next look-up.

The secrets also show what a lost hello contained: keys that open a record prove it, because records
authenticate. Without the ServerHello of TLS 1.3, the cipher suite is unknown. Without the
ClientHello, it is unknown which session of the key log this is. Without the ServerHello of TLS 1.2,
nothing helps: its random is an input of the keys.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from dissector.tls.hellos import ClientHello, ServerHello
from dissector.tls.keylog import EARLY, EPOCHS, MASTER, SESSION_ID, KeyLog
from dissector.tls.record_layer import TlsRecord
from dissector.tls.side import Side
from dissector.tls.suites import NAMES, Suite, suite

if TYPE_CHECKING:
    from dissector.tls.protection import Opener

TLS_1_2, TLS_1_3 = 0x0303, 0x0304
SUITES_1_3 = 0x13
"""First byte of the numbers of cipher suites of TLS 1.3 (RFC 8446, appendix B.4)."""
MASTER_BYTES = 48
"""Size of the secret of TLS 1.2 (RFC 5246, section 8.1)."""
LATER_EPOCHS = 2
"""Epochs that may begin in lost bytes: those of EndOfEarlyData and Finished, which a client sends
together, or of key updates."""
_HANDSHAKE_EPOCH = 1
"""The epoch of TLS 1.3 that has no data."""


class Schedule:
    """The keys of one connection. Methods take the key log, since a session may move to a process
    with another one."""

    def __init__(self, random: bytes, chosen: ServerHello, suite: Suite) -> None:
        """`random`: the client random."""
        self._random = random
        self._chosen = chosen
        self._suite = suite
        self._openers: tuple[Opener, Opener] | None = None  # of TLS 1.2

    def early(self, keys: KeyLog) -> Opener | None:
        """The opener of early data; None if the log has no secret for it.

        A server that accepts early data chose the suite of the resumed session.
        """
        from dissector.tls import protection

        secret = self._find(keys, EARLY)
        return None if secret is None else protection.opener_1_3(secret, self._suite)

    def following(
        self, keys: KeyLog, side: Side, epoch: int, secret: bytes
    ) -> tuple[Opener, bytes] | None:
        """Opener and secret of an end in the epoch after `epoch`, whose secret is `secret`."""
        from dissector.tls import protection

        if self._chosen.version == TLS_1_2:
            opener = None if epoch else self._opener_1_2(keys, side)
            return None if opener is None else (opener, b"")
        if epoch < len(EPOCHS):
            label = f"{'CLIENT' if side.is_client else 'SERVER'}_{EPOCHS[epoch]}"
            following = self._find(keys, label)
        else:
            following = protection.next_secret(secret, self._suite)
        if following is None:
            return None
        return protection.opener_1_3(following, self._suite), following

    def open(self, keys: KeyLog, side: Side, record: TlsRecord) -> tuple[int, bytes] | None:
        """Content type and plaintext, by the first key and number that open the record.

        The end enters the epoch of this key. None: the record does not open.
        """
        assert side.opener is not None
        opened = side.opener.open(record, side.sequence)
        if opened is not None:
            side.sequence += 1
            return opened
        if side.may_be_early:
            return None
        opener, secret, epoch, first = side.opener, side.secret, side.epoch, side.sequence + 1
        for _ in range(1 + LATER_EPOCHS):
            sequence, opened = side.attempt(record, opener, first)
            if opened is not None:
                self._note_lost(side, epoch, sequence)
                if epoch != side.epoch:
                    side.enter(opener, secret, epoch)
                side.sequence = sequence + 1
                break
            following = self.following(keys, side, epoch, secret)
            if following is None:
                break
            (opener, secret), epoch, first = following, epoch + 1, 0
        return opened

    def _note_lost(self, side: Side, epoch: int, sequence: int) -> None:
        """Note that the records before this one of an epoch are lost: the remainder of a message,
        and their plaintext, are unknown."""
        side.messages.clear()
        if self._chosen.version == TLS_1_3:
            lost_epochs = range(side.epoch, epoch + (sequence > 0))
            side.missed |= any(each != _HANDSHAKE_EPOCH for each in lost_epochs)
        else:
            side.missed |= sequence > 1  # the first record is Finished

    def _find(self, keys: KeyLog, label: str) -> bytes | None:
        """A secret of TLS 1.3: it has the size of the hash."""
        return keys.find(label, self._random, hashlib.new(self._suite.hash).digest_size)

    def _opener_1_2(self, keys: KeyLog, side: Side) -> Opener | None:
        from dissector.tls import protection

        master = keys.find(MASTER, self._random, MASTER_BYTES) or keys.find(
            SESSION_ID, self._chosen.session_id, MASTER_BYTES
        )
        if self._openers is None and master is not None:
            self._openers = protection.openers_1_2(
                master, self._random, self._chosen.random, self._suite,
                self._chosen.encrypt_then_mac,
            )  # fmt: skip
        return self._openers[0 if side.is_client else 1] if self._openers else None


def find_server_hello(
    keys: KeyLog, random: bytes, side: Side, record: TlsRecord
) -> ServerHello | None:
    """The choice of the cipher suite of TLS 1.3 whose keys open this record."""
    for number in NAMES:
        parts = suite(number)
        if number >> 8 != SUITES_1_3 or parts is None:
            continue
        hello = ServerHello(b"", b"", TLS_1_3, number, 0, None, False)
        schedule = Schedule(random, hello, parts)
        for epoch in (0, 1):
            following = schedule.following(keys, side, epoch, b"")
            if following and side.attempt(record, following[0], 0)[1]:
                return hello
    return None


def find_client_hello(
    keys: KeyLog, chosen: ServerHello, suite: Suite, side: Side, record: TlsRecord, since: int
) -> ClientHello | None:  # fmt: skip
    """The hello with the client random whose keys open the first encrypted record of an end.

    Its other fields are unknown. `since`: number of sessions of the key log that do not open it.
    """
    for random in keys.candidates(since):
        following = Schedule(random, chosen, suite).following(keys, side, 0, b"")
        if following and following[0].open(record, 0):
            return ClientHello(random, None, False)
    return None

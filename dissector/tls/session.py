"""One TLS connection: the records of both ends, their keys, and the plaintext.

Each end goes through epochs: unencrypted; in TLS 1.3 under its handshake secret, up to Finished;
then under a traffic secret, and a new one after each KeyUpdate. TLS 1.2 has one epoch after
ChangeCipherSpec. Bytes of an end are buffered until their dependencies are present: the client's
records need the ServerHello, the server's the ClientHello, both need the key log. Without a key
log, the handshake is followed, to report whether it failed.

A TLS 1.3 client may send data before its handshake (early data, 0-RTT; RFC 8446, section 4.2.10),
under a separate secret, up to its EndOfEarlyData. It is buffered until the server's
EncryptedExtensions, which state whether the server accepts it. If not, it is discarded, and the
client sends the data again.

`handshake` has what the ends agree on. If a part of the record of a hello is lost, the messages in
the first bytes are read.

After lost records, the numbers of the next epochs are tried, too (`schedule`). The length of the
lost plaintext is unknown, so positions jump by `HOLE`. An end is abandoned if too many records in a
row cannot be decrypted.
"""

from __future__ import annotations

from typing import Any

from dissector.errors import DecodeError
from dissector.problems import ABORTED, AFTER_DATA, FAILED_HANDSHAKE
from dissector.tls.alerts import alert_name
from dissector.tls.events import HOLE, Plaintext, TlsProblem
from dissector.tls.handshake import CLIENT_HELLO, SERVER_HELLO, Handshake
from dissector.tls.keylog import KeyLog
from dissector.tls.record_layer import (
    ALERT,
    APPLICATION_DATA,
    CHANGE_CIPHER_SPEC,
    HANDSHAKE,
    HEADER,
    Arrival,
    TlsRecord,
)
from dissector.tls.side import Side
from dissector.tls.unkeyed import UnkeyedHandshake

REJECTS = 64
"""Consecutive positions without a valid record before an end is abandoned."""
WAITING_LIMIT = 1 << 18
"""Bytes that may be buffered, of both ends, for the peer's handshake or for the key log."""

_END_OF_EARLY_DATA, _FINISHED, _KEY_UPDATE = 5, 20, 24
_FATAL = 2
_EPOCH_ENDS = {(_END_OF_EARLY_DATA, 0), (_FINISHED, 1), (_KEY_UPDATE, 2)}
"""Messages of TLS 1.3 that end an epoch; epoch 2 stands for all later ones."""

_UNREAD = {
    True: "the key log lacks its secret",
    False: "the server rejected it",
    None: "unknown whether the server accepted it",
}
"""Why early data is not decrypted, by whether the server accepted it."""


class TlsSession:
    """Decrypts one connection. `keys` may grow during the session."""

    def __init__(self, keys: KeyLog) -> None:
        self._handshake = Handshake()
        self.facts = self._handshake.facts
        self.client: int | None = None
        """The end that sent the ClientHello: 0, 1, or None if unknown."""
        self.is_over = False
        """Whether the session reads no further bytes."""
        self.problems: list[TlsProblem] = []
        """New problems; the reader clears the list."""
        self.keys = keys
        """To be set in another process that takes the session over."""
        self._sides = (Side(0), Side(1))
        self._waits = True  # whether a hello may still come
        self._has_failed = False
        self._unkeyed = UnkeyedHandshake()
        self._time = 0  # of a problem that is reported now

    def __getstate__(self) -> dict[str, Any]:
        """All but the keys, which may be those of a million sessions."""
        return {**vars(self), "keys": KeyLog()}

    def feed(self, end: int, at: int, data: bytes, arrival: Arrival) -> None:
        """Add bytes of an end at position `at`; positions ascend."""
        side = self._sides[end]
        if not self.is_over and not side.is_given_up:
            side.reader.feed(at, data, arrival)

    def read(self, *, last: bool = False, is_closed: bool = False) -> list[Plaintext]:
        """Decrypt all that is possible now.

        `last`: no further bytes come. `is_closed`: because the connection was closed, and no byte
        of it is missing.
        """
        plaintext: list[Plaintext] = []
        self._take_all(plaintext)
        if self._waits and (last or self.waiting > WAITING_LIMIT):
            self._waits = False
            self._take_all(plaintext)
        while last and any(side.reader.reject_incomplete() for side in self._sides):
            self._take_all(plaintext)
        waiting = self.waiting
        if not self.is_over and (last or waiting > WAITING_LIMIT):
            if is_closed:
                self._report_incomplete_handshake()
            self._end_waiting(waiting)
        return plaintext

    def _take_all(self, plaintext: list[Plaintext]) -> None:
        """Read the records of both ends that can be read now."""
        moved = True
        while moved and not self.is_over:
            moved = False
            for side in self._sides:
                while not self.is_over and (record := side.reader.peek()) is not None:
                    if not self._take(side, record, plaintext):
                        break
                    moved = True

    @property
    def waiting(self) -> int:
        """Number of buffered bytes."""
        return sum(side.reader.size for side in self._sides)

    @property
    def since(self) -> int:
        """Arrival time of the first buffered byte; 0 if there is none."""
        return min((side.reader.since or 0 for side in self._sides if side.reader.size), default=0)

    def give_up(self) -> None:
        """End the session to free memory."""
        side = self._begin_end()
        self._stop("memory", "the memory budget was used up", side, self.waiting)

    def _begin_end(self) -> Side:
        """The end with the most buffered bytes; problems get the time of the last byte."""
        self._time = max(side.reader.latest for side in self._sides)
        return max(self._sides, key=lambda side: side.reader.size)

    def _end_waiting(self, waiting: int) -> None:
        """Drop the buffered bytes, and report the reason.

        `waiting`: number of buffered bytes. Beyond `WAITING_LIMIT`, it depends on how many were fed
        at once, and so does the last byte: the problem has the time of the first one instead.
        """
        side, size = self._begin_end(), None if waiting > WAITING_LIMIT else waiting
        if size is None:
            waiting_sides = [each for each in self._sides if each.reader.size]
            side = min(waiting_sides, key=lambda each: each.reader.since or 0)
            self._time = side.reader.since or 0
        if self._has_failed and not any(each.position for each in self._sides):
            self.is_over = True  # the handshake failed, so that no data follows
        elif waiting and (self._handshake.hello is None or self._handshake.chosen is None):
            self._stop_without_hello(side, size)
        elif (
            waiting
            and self._handshake.hello
            and any(
                each.epoch == 0 and self._handshake.following(self.keys, each) is None
                for each in self._sides
            )
        ):
            random = self._handshake.hello.random
            reason = f"the key log has no secret for client random {random.hex()}"
            if self._handshake.is_1_3 and self.keys.has_session(random):
                reason = "the key log lacks its handshake secrets"
            self._stop("tls_no_keys", reason, side, size)
        elif any(each.is_ending and each.reader.size for each in self._sides):
            self._stop("tls_no_keys", "the key log lacks its traffic secrets", side, size)
        else:
            for each in self._sides:
                self._report_cut(each)
            self.is_over = True

    def _take(self, side: Side, record: TlsRecord, plaintext: list[Plaintext]) -> bool:
        """Read one record; False if it must stay buffered."""
        handshake, self._time = self._handshake, record.arrival[0]
        if handshake.hello is None and not self._finds_client(side, record):
            return self.is_over
        if side.epoch == 0 and side.opener is None:
            self._read_fragment(side)
            if self.is_over:
                return True
            if self._lacks_server_hello(side, record):
                return self._find_server_hello(side, record)
            if side.protected_since is None and not handshake.is_protected(side, record):
                self._read_clear(side, record)
                return True
            if not self.keys.is_given:
                return self._follow(side, record)
            if record.content == CHANGE_CIPHER_SPEC:
                side.has_changed_cipher = True
                side.reader.accept(record)
                return True
            if handshake.hello is None and not handshake.find_client_hello(self.keys, side, record):
                return False
            if not side.has_changed_cipher and record.content == HANDSHAKE:
                following = handshake.following(self.keys, side)
                if following is None:
                    return False
                if following[0].open(record, 0) is None:
                    self._read_clear(side, record)  # ChangeCipherSpec was not lost
                    return True
            if not handshake.begin(self.keys, side, self._sides[1 - side.end]):
                return False
        if side.is_ending and not handshake.advance(self.keys, side):
            return False
        self._open(side, record, plaintext)
        return True

    def _read_fragment(self, side: Side) -> None:
        """Read the messages in the first bytes of an unencrypted record, if the others are lost."""
        if side.reader.lost_at is None:
            return
        fragment, side.reader.fragment = side.reader.fragment, b""
        if fragment and not side.has_changed_cipher:
            self._read_messages(side, fragment)
        self._handshake.read_truncated(side)

    def _lacks_server_hello(self, side: Side, record: TlsRecord) -> bool:
        """Whether this record can only be read with the ServerHello, which was not read: without
        its ChangeCipherSpec, a client's encrypted Finished looks like an unencrypted message."""
        if self._handshake.chosen is not None:
            return False
        if side.is_client and (self._waits or not self.keys.is_given):
            return record.content != HANDSHAKE or self._handshake.hello is not None
        return self.keys.is_given and record.content == APPLICATION_DATA

    def _find_server_hello(self, side: Side, record: TlsRecord) -> bool:
        """Find the server's choice in TLS 1.3; False if the record must stay buffered."""
        if side.is_client and self._waits:
            return False
        return self._handshake.find_server_hello(self.keys, side, record)

    def _follow(self, side: Side, record: TlsRecord) -> bool:
        """Follow an encrypted handshake without keys; False if the record must stay buffered."""
        unkeyed, opposite = self._unkeyed, self._sides[1 - side.end]
        if not unkeyed.read(side, opposite, record, is_1_3=self._handshake.is_1_3):
            return False
        if unkeyed.has_failed:
            self._add_problem("tls_alert", "TLS failed: an encrypted alert", side, record.at)
        self.is_over = unkeyed.is_over
        side.reader.accept(record)
        return True

    def _report_incomplete_handshake(self) -> None:
        """Report that a closed connection lacks a message of the handshake."""
        if self._handshake.hello is None or self.client is None or self._has_failed:
            return
        client, server = self._sides[self.client], self._sides[1 - self.client]
        if self._handshake.chosen is None:
            missing, side, is_missing = "ServerHello", server, not server.reader.latest
        else:
            missing, side = "client's Finished", client
            is_missing = not (client.epoch or client.protected_since or client.reader.size)
        if is_missing:
            self._time = max(client.reader.latest, server.reader.latest)
            detail = f"TLS failed: the connection ended before the {missing}"
            self._add_problem("tls_closed", detail, side, side.reader.at)
            self._has_failed = True

    def _finds_client(self, side: Side, record: TlsRecord) -> bool:
        """Whether this end can be read: the client's, whose ClientHello is next, and the server's
        if the ClientHello is lost. Otherwise the server's first records wait for it."""
        if self._handshake.lacks_hello:
            return True
        opposite = self._sides[1 - side.end]
        other = opposite.reader.peek()
        near, far = _next_message(side), _next_message(opposite)
        if near == CLIENT_HELLO:
            self._set_client(side)
        if side.is_client:
            return True
        if self.client is not None or far == CLIENT_HELLO:
            return False
        if near == SERVER_HELLO and other is None and self._waits:
            return False
        if SERVER_HELLO in (near, far):
            self._set_client(opposite if near == SERVER_HELLO else side)
            self._handshake.lacks_hello = True
            return True
        if other is not None and other.arrival < record.arrival:
            self._time, side = other.arrival[0], opposite
        self._stop_without_hello(side)
        return False

    def _set_client(self, client: Side) -> None:
        self.client = client.end
        for side in self._sides:
            side.is_client = side is client

    def _read_clear(self, side: Side, record: TlsRecord) -> None:
        was_lost = record.at != side.clear_until
        side.is_late |= record.at > 0
        side.clear_until = record.at + HEADER + len(record.body)
        side.reader.accept(record)
        if record.content == HANDSHAKE:
            if was_lost:
                side.messages.clear()
            self._read_messages(side, record.body)
        elif record.content == ALERT:
            self._read_alert(side, record.body)

    def _open(self, side: Side, record: TlsRecord, plaintext: list[Plaintext]) -> None:
        """Decrypt and read a record."""
        if self._handshake.is_1_3 and _is_clear(record):
            side.reader.accept(record)  # unencrypted, and without a number
            if record.content == ALERT:
                self._read_alert(side, record.body)
            return
        schedule = self._handshake.schedule
        assert schedule is not None
        opened = schedule.open(self.keys, side, record)
        if opened is None:
            self._not_opened(side, record)
            return
        side.note_opened()
        self._report_lost(side, record.at)
        side.reader.accept(record)
        content, data = opened
        if content == APPLICATION_DATA and data:
            side.position += HOLE if side.missed else 0
            side.missed = False
            self.facts.is_decrypted = True
            plaintext.append(Plaintext(side.end, side.position, data, record.arrival))
            side.position += len(data)
        elif content == HANDSHAKE:
            self._read_messages(side, data)
        elif content == ALERT:
            self._read_alert(side, data)

    def _not_opened(self, side: Side, record: TlsRecord) -> None:
        if side.may_be_early:
            if not side.passed_early:
                side.passed_early = True
                side.missed = self._handshake.accepts_early is not False
                detail = f"early data (0-RTT) was skipped: {_UNREAD[self._handshake.accepts_early]}"
                self._add_problem("tls_early_data", detail, side, record.at)
            side.reader.accept(record)
            return
        is_first = not (side.rejects or side.sequence) and side.reader.lost_at is None
        side.is_misfit |= is_first and side.epoch <= 2  # later secrets are not in the key log
        side.reader.reject()
        side.rejects += 1
        if side.rejects > REJECTS:
            since, end = side.reader.lost_at or 0, record.at + HEADER + len(record.body)
            if side.is_misfit:
                self._report_lost(side, end)
            else:
                detail = "too many records do not decrypt: the remaining bytes were skipped"
                self._add_problem("tls_given_up", detail, side, since, end - since)
            side.reader.clear()
            side.is_given_up = True
            self.is_over = all(each.is_given_up for each in self._sides)

    def _report_lost(self, side: Side, until: int) -> None:
        """Report the bytes skipped before position `until`."""
        since = side.reader.lost_at
        if since is None or until <= since:
            return
        kind, detail = "tls_lost_records", "TLS records were lost, or do not decrypt"
        if side.is_misfit:
            kind, detail = "tls_wrong_keys", "not decrypted: its secret in the key log is wrong"
        self._add_problem(kind, detail, side, since, until - since)

    def _report_cut(self, side: Side) -> None:
        """Report the undecrypted bytes at the end."""
        reader = side.reader
        self._report_lost(side, reader.at + reader.size)
        if reader.lost_at is None and reader.size:
            detail = "the connection or the capture ended inside a TLS record"
            self._add_problem("tls_cut_record", detail, side, reader.at, reader.size)

    def _read_messages(self, side: Side, data: bytes) -> None:
        """Read handshake messages, which may share records and cross them."""
        try:
            for kind, body in side.handshake_messages(data):
                self._read_message(side, kind, body)
                if self.is_over:
                    break
        except DecodeError as error:
            side.messages.clear()
            if side.epoch or self._handshake.chosen is not None:
                return  # later messages are not needed
            if side.is_late or not self._waits:  # what follows a lost hello may be encrypted
                self._stop_without_hello(side)
            else:
                self._stop("tls_malformed", error.detail, side)

    def _read_message(self, side: Side, kind: int, body: bytes) -> None:
        handshake = self._handshake
        if handshake.is_1_3 and (kind, min(side.epoch, 2)) in _EPOCH_ENDS:
            side.is_ending = not handshake.advance(self.keys, side)
        elif kind == CLIENT_HELLO and side.is_client and side.epoch:
            self._stop("tls_renegotiation", "its keys were renegotiated", side)
        else:
            handshake.read(side, kind, body)
            if kind == SERVER_HELLO and self.keys.is_given and handshake.unsupported:
                self._stop("tls_unsupported", handshake.unsupported, side)

    def _read_alert(self, side: Side, body: bytes) -> None:
        """A fatal alert ends the connection (RFC 8446, section 6). The handshake failed unless the
        end that sends the alert has sent data."""
        if len(body) == 2 and body[0] == _FATAL:
            kind, place = (ABORTED, AFTER_DATA) if side.position else ("tls_alert", "")
            detail = f"TLS failed: alert {alert_name(body[1])}{place}"
            self._add_problem(kind, detail, side, side.reader.at)
            self._has_failed |= kind == "tls_alert"

    def _stop_without_hello(self, side: Side, waiting: int | None = None) -> None:
        """Abandon both ends, as one is not in the capture, or its beginning is missing."""
        missing = "ServerHello" if self._handshake.hello else "ClientHello"
        self._stop("tls_no_handshake", f"its {missing} is not in the capture", side, waiting)

    def _stop(self, kind: str, reason: str, side: Side, waiting: int | None = None) -> None:
        """Abandon both ends; reported if there are keys.

        `waiting`: size of the buffered bytes. None: later bytes of the connection are not buffered.
        """
        self._add_problem(kind, f"not decrypted: {reason}", side, side.reader.at, waiting)
        self.is_over = True
        for each in self._sides:
            each.reader.clear()

    def _add_problem(
        self, kind: str, detail: str, side: Side, offset: int, size: int | None = None
    ) -> None:
        if self.keys.is_given or kind in FAILED_HANDSHAKE:
            self.problems.append(TlsProblem(kind, detail, side.end, offset, size, self._time))


def _is_clear(record: TlsRecord) -> bool:
    """Whether a record is one of those that TLS 1.3 does not encrypt after the hellos. Their sizes
    are fixed (RFC 8446, sections 5 and 6), so that few bytes after a loss look like them."""
    is_change = record.content == CHANGE_CIPHER_SPEC and record.body == b"\1"
    return is_change or (record.content == ALERT and len(record.body) == 2)


def _next_message(side: Side) -> int | None:
    """The kind of the next unencrypted handshake message of an end; None if its next bytes are
    something else."""
    record = side.reader.peek()
    if side.reader.fragment:
        return side.reader.fragment[0]
    return record.body[0] if record is not None and record.content == HANDSHAKE else None

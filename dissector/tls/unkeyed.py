"""Follows an encrypted handshake without keys, to find out whether it failed.

In TLS 1.2 an alert about the client's part is unencrypted until the server's part ends. TLS 1.3
encrypts alerts, but their size shows them. If a server rejects the client's certificate, its alert
is the first record that it sends after the client's part.
"""

from __future__ import annotations

from dissector.arrays import mutable
from dissector.tls.record_layer import APPLICATION_DATA, TlsRecord
from dissector.tls.side import Side

PADDED_ALERT = 35
"""Size of an encrypted alert of Java, which adds 16 bytes of padding."""
_ALERT_BODIES = (11, 19, PADDED_ALERT)
"""Sizes of encrypted alerts in TLS 1.3. The first one has the short tag of CCM_8."""


@mutable
class UnkeyedHandshake:
    """The encrypted part of one handshake."""

    is_over: bool = False
    """Whether the handshake failed, or did not."""
    has_failed: bool = False
    """Whether it ended with an encrypted alert."""
    is_closing: bool = False
    """Whether the client sent an alert after its handshake."""

    def read(self, side: Side, opposite: Side, record: TlsRecord, *, is_1_3: bool) -> bool:
        """Read an encrypted record; False if it must stay buffered."""
        opposite_since = opposite.protected_since
        if not is_1_3:
            side.protected_since = record.arrival
            self.is_over = opposite_since is not None
        elif side.is_client:
            self._read_client(side, record)
        elif opposite_since is None:
            return False
        elif record.arrival > opposite_since:
            self.has_failed = _may_be_alert(record) and not self.is_closing
            self.is_over = True
        return True

    def _read_client(self, side: Side, record: TlsRecord) -> None:
        """Read an encrypted record of the client in TLS 1.3."""
        if side.protected_since is not None:
            # With padding, the alert before a close has the size of a short request.
            self.is_closing |= _may_be_alert(record) and len(record.body) < PADDED_ALERT
            return
        side.protected_since = record.arrival
        self.has_failed = self.is_over = _may_be_alert(record)


def _may_be_alert(record: TlsRecord) -> bool:
    """Whether an encrypted record of TLS 1.3 has the size of an alert: two bytes, and after them
    the content type and the tag."""
    return record.content == APPLICATION_DATA and len(record.body) in _ALERT_BODIES

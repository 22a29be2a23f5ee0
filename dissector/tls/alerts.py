"""Names of alerts (RFC 8446, section 6; RFC 5246, section 7.2)."""

from __future__ import annotations

_NAMES = {
    10: "unexpected_message",
    20: "bad_record_mac",
    22: "record_overflow",
    40: "handshake_failure",
    42: "bad_certificate",
    43: "unsupported_certificate",
    44: "certificate_revoked",
    45: "certificate_expired",
    46: "certificate_unknown",
    47: "illegal_parameter",
    48: "unknown_ca",
    49: "access_denied",
    50: "decode_error",
    51: "decrypt_error",
    70: "protocol_version",
    71: "insufficient_security",
    80: "internal_error",
    86: "inappropriate_fallback",
    109: "missing_extension",
    110: "unsupported_extension",
    112: "unrecognized_name",
    113: "bad_certificate_status_response",
    115: "unknown_psk_identity",
    116: "certificate_required",
    120: "no_application_protocol",
}


ALERT_RECORD = 7
"""Bytes of an unencrypted alert with the header of its record."""


def clear_alert(record: bytes) -> str | None:
    """The name of the fatal alert that this unencrypted record contains; None if it is another."""
    is_alert = len(record) == ALERT_RECORD and record[:2] == b"\x15\3" and record[3:6] == b"\0\2\2"
    return alert_name(record[6]) if is_alert else None


def alert_name(number: int) -> str:
    """The name of an alert, or its number."""
    return _NAMES.get(number, str(number))

"""SASL tokens: their mechanism, their step, and their fields that are not secret.

    PLAIN        RFC 4616    [authzid] NUL user NUL password
    SCRAM        RFC 5802    four messages of attributes, n=user,r=nonce,...; Kafka adds
                             tokenauth=true if the user is a delegation token (KIP-48)
    OAUTHBEARER  RFC 7628    gs2 header, then key=value pairs between bytes 0x01; the broker sends
                             nothing, or an error in JSON
    GSSAPI       RFC 4752    opaque

The client's SaslHandshake contains the mechanism. If it is not in the capture, tokens of the first
three mechanisms are recognised by their format. Other tokens are not decoded.

Nonces, salts and proofs count as secrets: together they allow offline guessing of the password.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Final

from dissector.embedded.contents import Contents, field_event
from dissector.protocol.explain import Explained

_SECRET: Final = ("secret",)

_GS2: Final = re.compile(rb"(?P<binding>[nyp][^,]*),(?:a=(?P<authzid>[^,]*))?,")
"""The header of SCRAM and OAUTHBEARER messages (RFC 5801, section 4)."""

_SCRAM_NAMES: Final = {
    b"n": "user", b"r": "nonce", b"s": "salt", b"i": "iterations", b"c": "channel_binding",
    b"p": "proof", b"v": "server_signature", b"e": "error", b"m": "extension",
}  # fmt: skip
_SCRAM_OPEN: Final = frozenset({b"n", b"i", b"e", b"tokenauth"})
"""Attributes that are shown; unknown attributes may be secrets."""
_SCRAM_STEPS: Final = {
    b"r,s,i": "server-first", b"c,r,p": "client-final", b"v": "server-final", b"e": "server-final",
}  # fmt: skip

_BEARER_ERROR: Final = ("status", "scope", "openid-configuration")


def token(data: bytes, mechanism: str | None) -> Contents | None:
    """The content of one token; None if it cannot be decoded."""
    if not data:
        return None
    if mechanism is not None:
        reader = _READERS.get(mechanism.partition("-")[0].upper())
        return reader(data, mechanism) if reader else None
    if not _text(data).replace("\0", "").replace("\x01", "").isprintable():
        return None
    return _scram(data, "SCRAM") or _bearer(data, "OAUTHBEARER") or _plain(data, "PLAIN")


def _plain(data: bytes, mechanism: str) -> Contents | None:
    parts = data.split(b"\0")
    if len(parts) != 3 or not all(parts[1:]):  # user and password are not empty
        return None
    events, at = [], 0
    for name, part in zip(("authzid", "user", "password"), parts, strict=True):
        roles = _SECRET if name == "password" else ()
        events.append(_attribute(name, part, at, roles))
        at += len(part) + 1
    return Contents(f"{mechanism} message", events)


def _scram(data: bytes, mechanism: str) -> Contents | None:
    events, at = [], 0
    gs2 = _GS2.match(data)
    if gs2:
        events += _gs2(gs2)
        at = gs2.end()
    keys = []
    for part in data[at:].split(b","):
        key, equals, value = part.partition(b"=")
        if not equals:
            return None
        keys.append(key)
        name = _SCRAM_NAMES.get(key, _text(key))
        roles = () if key in _SCRAM_OPEN else _SECRET
        if key == b"n":  # RFC 5802, section 5.1
            value = value.replace(b"=2C", b",").replace(b"=3D", b"=")
        events.append(_attribute(name, value, at + len(key) + 1, roles))
        at += len(part) + 1
    step = "client-first" if gs2 and keys[:2] == [b"n", b"r"] else None
    step = step or _SCRAM_STEPS.get(b",".join(keys[:3])) or _SCRAM_STEPS.get(keys[0])
    return Contents(f"{mechanism} {step}", events) if step else None


def _bearer(data: bytes, mechanism: str) -> Contents | None:
    gs2 = _GS2.match(data)
    if data == b"\x01":  # the client acknowledges the error
        return Contents(f"{mechanism} end")
    if gs2 is None:
        return _bearer_error(data, mechanism)
    if data[gs2.end() : gs2.end() + 1] != b"\x01":
        return None
    events, at = _gs2(gs2), gs2.end() + 1
    for pair in data[at:].split(b"\x01"):
        key, equals, value = pair.partition(b"=")
        if equals:
            where = at + len(key) + 1
            events.append(_attribute(_text(key), value, where, _SECRET))
            if key == b"auth":
                events += _claims(value)
        at += len(pair) + 1
    return Contents(f"{mechanism} message", events)


def _bearer_error(data: bytes, mechanism: str) -> Contents | None:
    """The broker's error for a token that it rejects (RFC 7628, section 3.2.2)."""
    error = _object(data)
    if "status" not in error:
        return None
    events = [field_event(name, str(error[name])) for name in _BEARER_ERROR if name in error]
    return Contents(f"{mechanism} error", events)


def _claims(auth: bytes) -> list[Explained]:
    """The names of the claims of a JSON Web Token (RFC 7519), without their values."""
    parts = auth.split(b" ")[-1].split(b".")
    if len(parts) < 2:
        return []
    try:
        payload = urlsafe_b64decode(parts[1] + b"==")
    except ValueError:
        return []
    names = ", ".join(map(str, _object(payload)))
    return [field_event("claims", names)] if names else []


def _object(data: bytes) -> dict[str, object]:
    """A JSON object; empty if the bytes are not a JSON object."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _gs2(match: re.Match[bytes]) -> list[Explained]:
    authzid = match["authzid"]
    if authzid is None:
        return []
    return [_attribute("authzid", authzid, match.start("authzid"), ())]


def _attribute(name: str, value: bytes, offset: int, roles: tuple[str, ...]) -> Explained:
    return field_event(name, _text(value), offset=offset, length=len(value), roles=roles)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


_READERS: Final[dict[str, Callable[[bytes, str], Contents | None]]] = {
    "PLAIN": _plain,
    "SCRAM": _scram,
    "OAUTHBEARER": _bearer,
    "GSSAPI": lambda data, mechanism: Contents(f"{mechanism} token, {len(data):,} bytes"),
}

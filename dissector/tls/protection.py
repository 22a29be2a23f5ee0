"""TLS record protection: derives keys from secrets, and decrypts records.

An `Opener` has the key of one direction and one epoch. `open` takes a record and its sequence
number in the epoch. It returns the content type and the plaintext, or None if authentication fails:
so a plaintext is exactly what was sent.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from dissector.tls.record_layer import TlsRecord
from dissector.tls.suites import Suite

_HASHES = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384()}


class Opener(Protocol):
    """The key of one direction and epoch."""

    def open(self, record: TlsRecord, sequence: int) -> tuple[int, bytes] | None:
        """Content type and plaintext."""


def openers_1_2(
    master: bytes, client_random: bytes, server_random: bytes, suite: Suite, encrypt_then_mac: bool
) -> tuple[Opener, Opener]:
    """Openers for client and server in TLS 1.2 (RFC 5246, section 6.3)."""
    mac = hashlib.new(suite.mac).digest_size if suite.mode == "CBC" else 0
    fixed = {"CBC": 0, "CHACHA20": 12}.get(suite.mode, 4)
    sizes = (mac, mac, suite.key_bytes, suite.key_bytes, fixed, fixed)
    seed = b"key expansion" + server_random + client_random
    block = _prf(master, seed, sum(sizes), suite.hash)
    parts, at = [], 0
    for size in sizes:
        parts.append(block[at : at + size])
        at += size
    macs, keys, ivs = parts[0:2], parts[2:4], parts[4:6]
    if suite.mode == "CBC":
        client, server = (
            _Cbc(key, mac_key, suite.mac, encrypt_then_mac)
            for key, mac_key in zip(keys, macs, strict=True)
        )
        return client, server
    return _Aead12(suite, keys[0], ivs[0]), _Aead12(suite, keys[1], ivs[1])


def opener_1_3(secret: bytes, suite: Suite) -> Opener:
    """The opener for a traffic secret (RFC 8446, section 7.3)."""
    key = _expand_label(secret, b"key", suite.key_bytes, suite)
    return _Aead13(suite, key, _expand_label(secret, b"iv", 12, suite))


def next_secret(secret: bytes, suite: Suite) -> bytes:
    """The traffic secret after a KeyUpdate (RFC 8446, section 7.2)."""
    return _expand_label(secret, b"traffic upd", len(secret), suite)


def _expand_label(secret: bytes, label: bytes, size: int, suite: Suite) -> bytes:
    """HKDF-Expand-Label without context (RFC 8446, section 7.1)."""
    full = b"tls13 " + label
    info = size.to_bytes(2, "big") + bytes([len(full)]) + full + b"\0"
    return HKDFExpand(_HASHES[suite.hash], size, info).derive(secret)


def _prf(secret: bytes, seed: bytes, size: int, hash_name: str) -> bytes:
    """RFC 5246, section 5. `seed`: with the label at its beginning."""
    output, last = b"", seed
    while len(output) < size:
        last = hmac.digest(secret, last, hash_name)
        output += hmac.digest(secret, last + seed, hash_name)
    return output[:size]


def _cipher(suite: Suite, key: bytes) -> AESGCM | AESCCM | ChaCha20Poly1305:
    if suite.mode == "GCM":
        return AESGCM(key)
    if suite.mode == "CHACHA20":
        return ChaCha20Poly1305(key)
    return AESCCM(key, tag_length=_tag_bytes(suite))


def _tag_bytes(suite: Suite) -> int:
    return 8 if suite.mode == "CCM_8" else 16


def _mixed(iv: bytes, sequence: int) -> bytes:
    return (int.from_bytes(iv, "big") ^ sequence).to_bytes(12, "big")


class _Aead:
    """A cipher that authenticates."""

    def __init__(self, suite: Suite, key: bytes, iv: bytes) -> None:
        self._arguments = suite, key, iv
        self._cipher = _cipher(suite, key)
        self._tag = _tag_bytes(suite)
        self._iv = iv

    def __reduce__(self) -> tuple[type[_Aead], tuple[Suite, bytes, bytes]]:
        """Ciphers of `cryptography` cannot be pickled, but a session can; see `Pipeline`."""
        return type(self), self._arguments


class _Aead13(_Aead):
    """RFC 8446, section 5.2: the content type is the last byte that is not padding."""

    def open(self, record: TlsRecord, sequence: int) -> tuple[int, bytes] | None:
        if len(record.body) < self._tag + 1:
            return None
        nonce = _mixed(self._iv, sequence)
        try:
            inner = self._cipher.decrypt(nonce, record.body, record.header)
        except InvalidTag:
            return None
        content = inner.rstrip(b"\0")
        return (content[-1], content[:-1]) if content else None


class _Aead12(_Aead):
    """RFC 5288, 6655 and 7905: part of the nonce is in the record, except for ChaCha20."""

    def open(self, record: TlsRecord, sequence: int) -> tuple[int, bytes] | None:
        explicit = 12 - len(self._iv)
        size = len(record.body) - explicit - self._tag
        if size < 0:
            return None
        nonce = self._iv + record.body[:8] if explicit else _mixed(self._iv, sequence)
        bound = sequence.to_bytes(8, "big") + record.header[:3] + size.to_bytes(2, "big")
        try:
            plain = self._cipher.decrypt(nonce, record.body[explicit:], bound)
        except InvalidTag:
            return None
        return record.content, plain


class _Cbc:
    """RFC 5246, section 6.2.3.2; RFC 7366 if records are encrypted, then authenticated."""

    def __init__(self, key: bytes, mac_key: bytes, mac: str, encrypt_then_mac: bool) -> None:
        self._key = algorithms.AES(key)
        self._mac_key = mac_key
        self._mac = mac
        self._mac_bytes = hashlib.new(mac).digest_size
        self._encrypt_then_mac = encrypt_then_mac

    def open(self, record: TlsRecord, sequence: int) -> tuple[int, bytes] | None:
        body = record.body
        if self._encrypt_then_mac:
            body, mac = body[: -self._mac_bytes], body[-self._mac_bytes :]
            if not self._is_mac(mac, record, sequence, body):
                return None
        if len(body) < 32 or len(body) % 16:
            return None
        decryptor = Cipher(self._key, modes.CBC(body[:16])).decryptor()
        plain = decryptor.update(body[16:]) + decryptor.finalize()
        padding = plain[-1] + 1
        if len(plain) < padding or plain[-padding:] != plain[-1:] * padding:
            return None
        plain = plain[:-padding]
        if not self._encrypt_then_mac:
            if len(plain) < self._mac_bytes:
                return None
            plain, mac = plain[: -self._mac_bytes], plain[-self._mac_bytes :]
            if not self._is_mac(mac, record, sequence, plain):
                return None
        return record.content, plain

    def _is_mac(self, mac: bytes, record: TlsRecord, sequence: int, text: bytes) -> bool:
        bound = sequence.to_bytes(8, "big") + record.header[:3] + len(text).to_bytes(2, "big")
        return hmac.digest(self._mac_key, bound + text, self._mac) == mac

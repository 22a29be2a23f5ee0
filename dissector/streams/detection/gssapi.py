"""GSSAPI tokens: what clients of Kafka 0.9 send before their first request.

They have a size, as messages have, but no header, and no SaslHandshake announces them.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Int64
from dissector.streams.connections.table import Bools
from dissector.streams.frame_chain import FrameChains
from dissector.streams.search.header_evidence import NO, HeaderScorer

TOKENS = 8
"""Most GSSAPI tokens of a client before its first request. Kerberos has three (RFC 4752)."""
GSSAPI_TAG = 0x60
_KERBEROS = bytes.fromhex("06092a864886f712010202")


def gssapi_head(size: int) -> bytes:
    """The first bytes of the first GSSAPI token for Kerberos (RFC 2743, section 3.1), if a token of
    this size may be one: a tag, a length in DER, and the mechanism 1.2.840.113554.1.2.2."""
    for width, limit in enumerate((0x80, 0x100, 0x10000)):
        length = size - 2 - width
        if len(_KERBEROS) <= length < limit:
            head = bytes([GSSAPI_TAG, 0x80 + width] if width else [GSSAPI_TAG])
            return head + length.to_bytes(max(width, 1), "big") + _KERBEROS
    return _KERBEROS  # no message has both this head and the tag


def first_requests(chains: FrameChains, index: Int64, scorer: HeaderScorer) -> tuple[Int64, Bools]:
    """Where the first requests of streams begin: at their heads, or after GSSAPI tokens; and
    whether an incomplete token is there."""
    at, end = chains.address[chains.first[index]], chains.end[index]
    is_open = np.zeros(len(at), np.bool_)
    readable = chains.readable(at, index) - 4
    is_tagged = (chains.number(at + 4, "i2") >> 8 == GSSAPI_TAG) & (readable > 0)
    rows = np.array([
        row
        for row in np.flatnonzero(is_tagged).tolist()
        if _begins_with_gssapi(chains, int(at[row]), int(readable[row]))
    ], np.int64)  # fmt: skip
    for _ in range(TOKENS):
        behind = at[rows] + 4 + chains.number(at[rows], "i4")
        is_whole = (chains.readable(at[rows], index[rows]) >= 4) & (behind <= end[rows])
        is_open[rows] = ~is_whole
        is_whole &= behind > at[rows]
        rows, behind = rows[is_whole], behind[is_whole]
        at[rows] = behind
        rows = rows[scorer.requests(chains, behind, index[rows])[1] == NO]
    return at, is_open


def _begins_with_gssapi(chains: FrameChains, at: int, readable: int) -> bool:
    """Whether a message begins with a GSSAPI token, as far as its bytes are readable."""
    head = gssapi_head(int(chains.number(np.array([at]), "i4")[0]))
    return head.startswith(chains.space.bytes(at + 4, min(readable, len(head))))

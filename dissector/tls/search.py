"""Finds what a lost hello contained, with the secrets of the key log.

Keys that open a record prove it: records authenticate. Without the ServerHello of TLS 1.3, the
cipher suite is unknown. Without the ClientHello, it is unknown which session of the key log this
is. Without the ServerHello of TLS 1.2, nothing helps: its random is an input of the keys.
"""

from __future__ import annotations

from dissector.tls.hellos import ClientHello, ServerHello
from dissector.tls.keylog import KeyLog
from dissector.tls.record_layer import TlsRecord
from dissector.tls.schedule import Schedule, suites_1_3
from dissector.tls.side import Side
from dissector.tls.suites import Suite


def find_server_hello(
    keys: KeyLog, random: bytes, side: Side, record: TlsRecord, *, is_client: bool
) -> ServerHello | None:
    """The choice of the cipher suite of TLS 1.3 whose keys open this record."""
    for hello, parts in suites_1_3():
        schedule = Schedule(keys, random, hello, parts)
        for epoch in (0, 1):
            following = schedule.following(epoch, b"", is_client=is_client)
            if following and side.attempt(record, following[0], 0)[1]:
                return hello
    return None


def find_client_hello(
    keys: KeyLog, chosen: ServerHello, suite: Suite, record: TlsRecord,
    *, since: int, is_client: bool,
) -> ClientHello | None:  # fmt: skip
    """The hello with the client random whose keys open the first encrypted record of an end.

    Its other fields are unknown. `since`: number of sessions of the key log that do not open it.
    """
    for random in keys.candidates(since):
        following = Schedule(keys, random, chosen, suite).following(0, b"", is_client=is_client)
        if following and following[0].open(record, 0):
            return ClientHello(random, None, False)
    return None

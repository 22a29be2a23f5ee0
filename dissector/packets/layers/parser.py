"""Reads link, network and transport headers of captured packets, as whole arrays.

A header selects the next one, so packets advance header by header, all packets of a kind at once. A
layer is a function that reads the header of all packets of its kind, and sets their next kind and
position; LAYERS lists them. For tunnels the inner packet counts: its addresses, not the addresses
of the tunnel.

Unreadable headers become problems: one row per kind and block, never one per packet. Bytes beyond
the length in an IP header are not payload (Ethernet pads short frames, and some cards append a
check sequence).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from dissector.packets.block import RST, Int32, PacketBlock
from dissector.packets.formats.capture_reader import Fields, PacketRecords
from dissector.packets.layers import by_packet, links, tunnels, unread_layers
from dissector.packets.layers.fragments import Fragments
from dissector.packets.layers.headers import (
    COMMON,
    FIRST_HEADER,
    MAX_LAYERS,
    PROTOCOLS,
    Kind,
    Layer,
    Names,
    Next,
    Packets,
    Rows,
    reads,
)
from dissector.packets.layers.layer_names import Label

_COMMON_LAYERS = 6
"""Headers of a packet to read at once, before those of tunnels."""


def _common(packets: Packets, rows: Rows) -> None:
    """The headers that most packets have."""
    packets.read_headers(np.arange(len(packets.kind))[rows], 1)


LAYERS: dict[Kind, Layer] = {
    **dict.fromkeys(COMMON, _common),
    **links.LAYERS,
    **tunnels.LAYERS,
    **by_packet.LAYERS,
}
_EXTENSION = ("protocol", "u1"), ("size", "u1"), ("fragment", ">u2"), ("-", "V4")


@reads(LAYERS, Kind.IPV6_OPTIONS, *_EXTENSION)
def _ipv6_options(header: Fields) -> Next:
    """RFC 8200, 4.3, 4.4 and 4.6: sizes are in units of 8 bytes, without the first 8 bytes."""
    return PROTOCOLS[header["protocol"]], (header["size"].astype(np.int64) + 1) * 8


@reads(LAYERS, Kind.AUTHENTICATION, *_EXTENSION)
def _authentication(header: Fields) -> Next:
    """RFC 4302, 2.2: the size is in units of 4 bytes, without the first 8 bytes."""
    return PROTOCOLS[header["protocol"]], (header["size"].astype(np.int64) + 2) * 4


@reads(LAYERS, Kind.IPV6_FRAGMENT, *_EXTENSION)
def _ipv6_fragment(header: Fields) -> Next:
    """RFC 8200, 4.5; a fragment that is both first and last (RFC 6946) is a whole packet."""
    kind = PROTOCOLS[header["protocol"]]
    fragment = ((header["fragment"] & 0xFFF9) != 0) & (kind != Kind.OTHER)
    return np.where(fragment, Kind.FRAGMENT_V6, kind), np.where(fragment, 0, 8)


def parse_packets(
    records: PacketRecords, capture: Int32, names: Names, fragments: Fragments
) -> PacketBlock:
    """The TCP packets among `records`.

    `capture`: the file of each packet, as a key of `names`. `fragments`: the buffered fragments of
    earlier packets.
    """
    packets = Packets(records)
    packets.read_headers(np.arange(len(packets.kind)), _COMMON_LAYERS)

    join = partial(fragments.join, packets, records, capture, names)
    _read_headers(packets, join)
    labels: dict[int, Label] = {}
    suspects = unread_layers.with_tcp_inside(packets)
    if len(suspects):
        labels = unread_layers.labels(records, suspects, LAYERS)
        if by_packet.open_by_scapy(packets, records, labels):
            _read_headers(packets, join)
    packets.kind[packets.kind >= FIRST_HEADER] = Kind.MALFORMED
    # TCP inside tunnels is reached later. No payload is at the first byte of a block.
    unread = np.flatnonzero((packets.kind == Kind.TCP) & (packets.columns["payload"] == 0))
    packets.read_headers(unread, 0)
    is_reset = packets.columns["flags"] & RST != 0
    for name in ("captured", "length"):  # a reset may contain text, which is not of the stream
        packets.columns[name][is_reset] = 0
    is_tcp = packets.kind == Kind.TCP
    rows: Rows = slice(None) if is_tcp.all() else np.flatnonzero(is_tcp)
    problems = unread_layers.problems(packets, records, capture, names, labels)
    return PacketBlock(
        data=packets.data,
        reserve=records.reserve,
        capture=capture[rows],
        number=records.number[rows],
        time=records.columns.time[rows],
        packets_seen=len(packets.kind),
        bytes_read=records.bytes_read,
        problems=records.problems + fragments.discarded() + problems,
        without_tcp={} if is_tcp.any() else unread_layers.counts(packets, records, LAYERS),
        fragments=fragments.joined(),
        **{name: column[rows] for name, column in packets.columns.items()},
    )


def _read_headers(packets: Packets, join: Callable[[], bool]) -> None:
    """Read headers until each packet is at TCP, or at an unsupported layer.

    `join`: reassembles fragments, and returns whether packets were completed. Their headers count
    from there on, however many headers other packets have. A packet may be fragmented again in a
    tunnel, but not without end.
    """
    for _ in range(MAX_LAYERS):
        for _ in range(MAX_LAYERS):
            groups = packets.groups(LAYERS)
            for kind, rows in groups:
                LAYERS[kind](packets, rows)
            if not groups:
                break
        else:
            packets.kind[packets.kind > Kind.FRAGMENT_V6] = Kind.MALFORMED
        if not join():
            return

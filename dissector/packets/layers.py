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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissector import kernel
from dissector.packets import by_packet, links, tunnels, unread_layers
from dissector.packets.block import FIN, RST, SYN, Int32, Int64, PacketBlock, UInt8
from dissector.packets.capture_reader import PacketRecords
from dissector.packets.fragments import Fragments
from dissector.packets.headers import (
    ETHERTYPES,
    FAMILIES,
    FIRST_HEADER,
    MAX_LAYERS,
    PROTOCOLS,
    Kind,
    Layer,
    Names,
    Packets,
    Rows,
)
from dissector.packets.layer_names import Label

_IPV4 = np.dtype(
    [
        *[("version", "u1"), ("service", "u1"), ("length", ">u2"), ("id", ">u2")],
        *[("fragment", ">u2"), ("ttl", "u1"), ("protocol", "u1"), ("checksum", ">u2")],
        *[("src", ">u4"), ("dst", ">u4")],
    ]
)
_IPV6 = np.dtype(
    [
        *[("version", "u1"), ("flow", "V3"), ("length", ">u2"), ("protocol", "u1"), ("hops", "u1")],
        *[("src_high", ">u8"), ("src_low", ">u8"), ("dst_high", ">u8"), ("dst_low", ">u8")],
    ]
)
_EXTENSION = np.dtype([("protocol", "u1"), ("size", "u1"), ("fragment", ">u2"), ("-", "V4")])
_TCP = np.dtype(
    [
        *[("src_port", ">u2"), ("dst_port", ">u2"), ("seq", ">u4"), ("ack", ">u4")],
        *[("offset", "u1"), ("flags", "u1"), ("window", ">u2"), ("checksum", ">u2")],
        ("urgent", ">u2"),
    ]
)
_MAPPED = np.uint64(0xFFFF_0000_0000)
_NULL = np.dtype([("family", "u1", 4)])
_RAW_IP = np.dtype([("version", "u1")])


def _null(packets: Packets, rows: Rows) -> None:
    """BSD loopback: an address family in the byte order of the capturing machine, or big-endian.

    All families fit into a byte, so it is the first byte or the last one.
    """
    rows, header = packets.header(rows, _NULL)
    family = header["family"]
    packets.kind[rows] = FAMILIES[family[:, 0] | family[:, 3]]
    packets.at[rows] += _NULL.itemsize


def _raw_ip(packets: Packets, rows: Rows) -> None:
    """No link header: the first bits are the IP version."""
    rows, header = packets.header(rows, _RAW_IP)
    version = header["version"] >> 4
    packets.kind[rows] = np.select(
        [version == 4, version == 6], [Kind.IPV4, Kind.IPV6], Kind.MALFORMED
    )


def _ipv4(packets: Packets, rows: Rows) -> None:
    """RFC 791. A total length of 0 comes from a card that cut the packet up later (TSO)."""
    rows, header = packets.header(rows, _IPV4)
    version = header["version"]
    size = ((version & 15) * 4).astype(np.int64)
    total = header["length"].astype(np.int64)
    at = packets.at[rows]
    kind = PROTOCOLS[header["protocol"]]
    fragment = ((header["fragment"] & 0x3FFF) != 0) & (kind != Kind.OTHER)
    if fragment.any():
        kind[fragment] = Kind.FRAGMENT
        size[fragment] = 0  # reassembly needs this header
    kind[(version >> 4 != 4) | (version & 15 < 5) | ((total < size) & (total != 0))] = (
        Kind.MALFORMED
    )
    packets.kind[rows] = kind
    _trim(packets, rows, np.where(total == 0, packets.wire_end[rows], at + total))
    packets.at[rows] = at + size  # last: `at` is a view if `rows` is all packets
    packets.src_high[rows] = packets.dst_high[rows] = 0  # it may be inside IPv6
    packets.src_low[rows] = header["src"] | _MAPPED
    packets.dst_low[rows] = header["dst"] | _MAPPED


def _ipv6(packets: Packets, rows: Rows) -> None:
    """RFC 8200. A payload length of 0 means a jumbogram (RFC 2675) or TSO."""
    rows, header = packets.header(rows, _IPV6)
    payload = header["length"].astype(np.int64)
    at = packets.at[rows] + _IPV6.itemsize
    kind = PROTOCOLS[header["protocol"]]
    kind[header["version"] >> 4 != 6] = Kind.MALFORMED
    packets.kind[rows] = kind
    packets.at[rows] = at
    _trim(packets, rows, np.where(payload == 0, packets.wire_end[rows], at + payload))
    packets.src_high[rows], packets.src_low[rows] = header["src_high"], header["src_low"]
    packets.dst_high[rows], packets.dst_low[rows] = header["dst_high"], header["dst_low"]


def _trim(packets: Packets, rows: Rows, wire_end: Int64) -> None:
    """Limit packets to the length in their IP header, since frames may have padding."""
    packets.wire_end[rows] = wire_end
    packets.end[rows] = np.minimum(packets.end[rows], wire_end)


def _ipv6_options(packets: Packets, rows: Rows) -> None:
    """RFC 8200, 4.3, 4.4 and 4.6: sizes are in units of 8 bytes, without the first 8 bytes."""
    rows, header = packets.header(rows, _EXTENSION)
    packets.kind[rows] = PROTOCOLS[header["protocol"]]
    packets.at[rows] += (header["size"].astype(np.int64) + 1) * 8


def _authentication(packets: Packets, rows: Rows) -> None:
    """RFC 4302, 2.2: the size is in units of 4 bytes, without the first 8 bytes."""
    rows, header = packets.header(rows, _EXTENSION)
    packets.kind[rows] = PROTOCOLS[header["protocol"]]
    packets.at[rows] += (header["size"].astype(np.int64) + 2) * 4


def _ipv6_fragment(packets: Packets, rows: Rows) -> None:
    """RFC 8200, 4.5; a fragment that is both first and last (RFC 6946) is a whole packet."""
    rows, header = packets.header(rows, _EXTENSION)
    kind = PROTOCOLS[header["protocol"]]
    fragment = ((header["fragment"] & 0xFFF9) != 0) & (kind != Kind.OTHER)
    kind[fragment] = Kind.FRAGMENT_V6
    packets.kind[rows] = kind
    packets.at[rows] += np.where(fragment, 0, _EXTENSION.itemsize)


LAYERS: dict[Kind, Layer] = {
    Kind.NULL: _null,
    Kind.RAW_IP: _raw_ip,
    Kind.IPV4: _ipv4,
    Kind.IPV6: _ipv6,
    Kind.IPV6_OPTIONS: _ipv6_options,
    Kind.IPV6_FRAGMENT: _ipv6_fragment,
    Kind.AUTHENTICATION: _authentication,
    **links.LAYERS,
    **tunnels.LAYERS,
    **by_packet.LAYERS,
}


def parse_packets(
    records: PacketRecords, capture: Int32, names: Names, fragments: Fragments
) -> PacketBlock:
    """The TCP packets among `records`.

    `capture`: the file of each packet, as a key of `names`. `fragments`: the buffered fragments of
    earlier packets.
    """
    packets = Packets(records)
    if kernel.COMPILED:
        _advance(packets)

    def join() -> bool:
        return fragments.join(packets, records, capture, names)

    _read_headers(packets, join)
    labels: dict[int, Label] = {}
    suspects = unread_layers.with_tcp_inside(packets)
    if len(suspects):
        labels = unread_layers.labels(records, suspects, LAYERS)
        if by_packet.open_by_scapy(packets, records, labels):
            _read_headers(packets, join)
    packets.kind[packets.kind >= FIRST_HEADER] = Kind.MALFORMED
    rows, fields = _compiled_tcp(packets) if kernel.COMPILED else _tcp(packets)
    problems = unread_layers.problems(packets, records, capture, names, labels)
    return PacketBlock(
        data=packets.data,
        reserve=records.reserve,
        capture=capture[rows],
        number=records.number[rows],
        time=records.columns.time[rows],
        src_high=packets.src_high[rows],
        src_low=packets.src_low[rows],
        dst_high=packets.dst_high[rows],
        dst_low=packets.dst_low[rows],
        packets_seen=len(packets.kind),
        bytes_read=records.bytes_read,
        problems=records.problems + fragments.discarded() + problems,
        **fields,
    )


def _read_headers(packets: Packets, join: Callable[[], bool]) -> None:
    """Read headers until each packet is at TCP, or at an unsupported layer.

    `join`: reassembles fragments, and returns whether packets were completed.
    """
    for _ in range(MAX_LAYERS):
        groups = packets.groups(LAYERS)
        for kind, rows in groups:
            LAYERS[kind](packets, rows)
        if not groups and not join():
            return


def _advance(packets: Packets) -> None:
    """Read the most common headers with the compiled loop."""
    kernel.loops.advance(
        packets.data, ETHERTYPES, PROTOCOLS, FAMILIES, packets.kind, packets.at, packets.end,
        packets.wire_end, packets.src_high, packets.src_low, packets.dst_high, packets.dst_low,
    )  # fmt: skip


_FIELDS = {
    "src_port": np.uint16, "dst_port": np.uint16, "seq": np.uint32, "ack": np.uint32,
    "flags": np.uint8, "window": np.uint16, "payload": np.int64, "captured": np.int32,
    "length": np.int32,
}  # fmt: skip
"""Columns of a `PacketBlock` that are read from TCP headers."""
_SAME = ("src_port", "dst_port", "seq", "ack", "window")
"""The columns that are unchanged header fields."""


def _compiled_tcp(packets: Packets) -> tuple[Rows, dict[str, Any]]:
    count = len(packets.kind)
    columns: list[NDArray[Any]] = [np.empty(count, dtype) for dtype in _FIELDS.values()]
    tcp_count = kernel.loops.read_tcp(
        packets.data, packets.kind, packets.at, packets.end, packets.wire_end, *columns
    )
    rows: Rows = slice(None) if tcp_count == count else np.flatnonzero(packets.kind == Kind.TCP)
    return rows, {name: column[rows] for name, column in zip(_FIELDS, columns, strict=True)}


def _tcp(packets: Packets) -> tuple[Rows, dict[str, Any]]:
    """RFC 9293, 3.1. Options may be truncated: the payload's position does not depend on them."""
    is_tcp = packets.kind == Kind.TCP
    rows: Rows = slice(None) if is_tcp.all() else np.flatnonzero(is_tcp)
    rows, header = packets.header(rows, _TCP)
    size = (header["offset"] >> 4).astype(np.int64) * 4
    payload = packets.at[rows] + size
    sound = (size >= 20) & (payload <= packets.wire_end[rows])
    if not sound.all():
        rows = np.arange(len(packets.kind))[rows]
        packets.kind[rows[~sound]] = Kind.MALFORMED
        rows, header, payload = rows[sound], header[sound], payload[sound]
    end = packets.end[rows]
    fields = {name: header[name].astype(_FIELDS[name]) for name in _SAME}
    return rows, {
        **fields,
        "flags": _flags(header["flags"]),
        "payload": np.minimum(payload, end),
        "captured": np.maximum(end - payload, 0).astype(np.int32),
        "length": (packets.wire_end[rows] - payload).astype(np.int32),
    }


def _flags(flags: UInt8) -> UInt8:
    """A segment with SYN and with FIN or RST is damaged: it neither opens nor closes."""
    both = (flags & SYN != 0) & (flags & (FIN | RST) != 0)
    return np.where(both, flags & ~np.uint8(SYN | FIN | RST), flags)

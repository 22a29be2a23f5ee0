"""Reports layers that cannot be read: rows of `problems`, counted by kind and file.

A packet that ends before an unsupported layer matters only if that layer contains TCP. So the bytes
after it are searched for an IP header with TCP: an IPv4 header with a valid checksum, or an IPv6
header with plausible lengths and addresses. ICMP quotes such headers, and is excluded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import FIN, RST, SYN, Bytes, Int32, Int64
from dissector.packets.formats.capture_reader import PacketRecords, gather
from dissector.packets.layers import by_packet
from dissector.packets.layers.headers import (
    ETHERTYPES_AT,
    FIRST_HEADER,
    MAX_LAYERS,
    Kind,
    Layer,
    Names,
    Packets,
)
from dissector.packets.layers.layer_names import SERVICES, Label
from dissector.problems import Problem, packets_are

SEARCHED: Final = 192
"""Bytes after the last header that are searched for an IP header."""
ROWS: Final = 1 << 14
"""Number of packets searched together."""
LABELS: Final = 20
"""Layers with their own row per block; the layers with fewer packets share one row."""
_LEAST: Final = 40
"""Bytes of the smallest headers of IP and TCP."""
_WINDOW: Final = np.dtype(f"V{SEARCHED + _LEAST}")
_TCP: Final = 6
_IPV4_WORDS: Final = np.dtype([("words", ">u2", 10)])
_IPV6: Final = np.dtype(
    [
        *[("-", "V4"), ("length", ">u2"), ("protocol", "u1"), ("hops", "u1"), ("src", "u1")],
        *[("src_end", "V15"), ("dst", "u1"), ("dst_end", "V15")],
    ]
)
_ADDRESSES: Final = [0x00, *range(0x20, 0x40), *range(0xFC, 0xFF)]
"""First bytes of addresses that are in use (RFC 4291; IANA's registry), without multicast."""
_TRAILER: Final = 64
"""Bytes that an encapsulation may append to a packet."""
_HINT: Final = "; scapy may read it: pip install 'kafka-dissector[live]'"
_FRAGMENTS: Final = Label("fragments of IP packets")
_OTHER_PORTS: Final = Label("other UDP ports")
_QUOTING: Final = {Label("IP protocol", 1), Label("IP protocol", 58)}
"""ICMP."""
_NUMBERS: Final = {
    **{kind: ("EtherType", type_at, 2) for kind, (_, type_at) in ETHERTYPES_AT.items()},
    Kind.SNAP: ("SNAP protocol", 0, 5),
    Kind.LLC: ("LLC service", 0, 1),
    Kind.GRE: ("GRE protocol", 2, 2),
    Kind.GENEVE: ("GENEVE protocol", 2, 2),
    Kind.IPV4: ("IP protocol", 9, 1),
    Kind.IPV6: ("IP protocol", 6, 1),
    Kind.IPV6_OPTIONS: ("IP protocol", 0, 1),
    Kind.IPV6_FRAGMENT: ("IP protocol", 0, 1),
    Kind.AUTHENTICATION: ("IP protocol", 0, 1),
    Kind.UDP: ("UDP port", 2, 2),
}
"""By kind of header, the number in it that selects the next one: its name, offset and size."""
_FORMS: Final = {
    Kind.WLAN: "802.11",
    Kind.MACSEC: "MACsec",
    Kind.BATMAN: "batman-adv",
    Kind.VXLAN_GPE: "VXLAN-GPE",
    Kind.TEREDO: "Teredo",
    Kind.ETHERIP: "EtherIP",
}

_PROBLEMS: Final = {
    Kind.CUT: ("cut_headers", "cut within a header: the capture has too few bytes of each"),
    Kind.MALFORMED: ("malformed_headers", "not read: a header contradicts itself"),
    Kind.TUNNEL: ("tunnel", "inside a tunnel of a form that is not supported"),
}
_FOREIGN: Final = (
    "not read: they do not begin with a header of {}, that of the file; `editcap -T` corrects a "
    "wrong link type"
)
"""Text for packets whose first header is malformed."""


def with_tcp_inside(packets: Packets) -> Int64:
    """The packets that end before an unsupported layer and seem to contain TCP after it."""
    is_unread = (packets.kind == Kind.OTHER) | (packets.kind == Kind.UNKNOWN_LINK)
    is_unread &= packets.end - packets.at >= _LEAST
    rows = np.flatnonzero(is_unread)
    parts = [_holding_tcp(packets, rows[at : at + ROWS]) for at in range(0, len(rows), ROWS)]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _holding_tcp(packets: Packets, rows: Int64) -> Int64:
    size = _WINDOW.itemsize
    data = packets.data
    if len(data) < size:
        data = np.append(data, np.zeros(size, np.uint8))
    begin = np.minimum(packets.at[rows], len(data) - size)
    window = gather(data, begin, _WINDOW).view(np.uint8).reshape(-1, size)
    first = window[:, :SEARCHED]
    is_ip = (first == 0x45) & (window[:, 9 : SEARCHED + 9] == _TCP)
    is_ip |= (first >> 4 == 6) & (window[:, 6 : SEARCHED + 6] == _TCP)
    index, offset = np.nonzero(is_ip)
    at, row = begin[index] + offset, rows[index]
    inside = (at >= packets.at[row]) & (at + _LEAST <= packets.end[row])
    at, row = at[inside], row[inside]
    is_v4 = data[at] == 0x45
    holds = np.zeros(len(at), np.bool_)
    holds[is_v4] = _is_ipv4(data, at[is_v4])
    holds[~is_v4] = _is_ipv6(
        data, at[~is_v4], packets.end[row[~is_v4]], packets.wire_end[row[~is_v4]]
    )
    return np.unique(row[holds])


def _is_ipv4(data: Bytes, at: Int64) -> NDArray[np.bool_]:
    """Whether an IPv4 header without options, not of a fragment, begins there, followed by TCP."""
    words = gather(data, at, _IPV4_WORDS)["words"].astype(np.int64)
    total = words.sum(axis=1)
    is_right = (total & 0xFFFF) + (total >> 16) == 0xFFFF
    is_whole = words[:, 3] & 0xBFFF == 0
    holds: NDArray[np.bool_] = is_right & is_whole & (words[:, 1] >= _LEAST)
    return holds & _is_tcp(data, at + 20)


def _is_ipv6(data: Bytes, at: Int64, end: Int64, wire_end: Int64) -> NDArray[np.bool_]:
    """Whether an IPv6 header begins there, followed by TCP and at most a short trailer."""
    inside = at + 60 <= end
    header = gather(data, np.where(inside, at, 0), _IPV6)
    left = wire_end - (at + 40 + header["length"])
    is_address = [np.isin(header[name], _ADDRESSES) for name in ("src", "dst")]
    is_sound = (left >= 0) & (left <= _TRAILER) & (header["length"] >= 20) & (header["hops"] > 0)
    holds: NDArray[np.bool_] = inside & is_sound & is_address[0] & is_address[1]
    return holds & _is_tcp(data, at + 40)


def _is_tcp(data: Bytes, at: Int64) -> NDArray[np.bool_]:
    """Whether a TCP header may begin there, inside the data."""
    inside = at + 14 <= len(data)
    at = np.where(inside, at, 0)
    flags = data[at + 13]
    has_one_meaning = (flags & SYN == 0) | (flags & (FIN | RST) == 0)
    begins: NDArray[np.bool_] = inside & (data[at + 12] >= 0x50) & (flags & 0x3F != 0)
    begins &= has_one_meaning
    return begins


def labels(records: PacketRecords, rows: Int64, layers: Mapping[Kind, Layer]) -> dict[int, Label]:
    """The layer at which each of these packets ends; packets that end at ICMP are excluded."""
    ends = _by_layer(records, rows, layers, with_ports=True).items()
    return {row: label for label, at in ends if label not in _QUOTING for row in at.tolist()}


def counts(
    packets: Packets, records: PacketRecords, layers: Mapping[Kind, Layer]
) -> dict[str, int]:
    """The number of packets without TCP by the layer at which they end, apart from those that are
    reported as problems."""
    rows = np.flatnonzero(packets.kind == Kind.OTHER)
    if not len(rows):
        return {}
    ends = _by_layer(records, rows, layers, with_ports=False).items()
    return {str(label): len(at) for label, at in ends if len(at)}


def _by_layer(
    records: PacketRecords, rows: Int64, layers: Mapping[Kind, Layer], *, with_ports: bool
) -> dict[Label, Int64]:
    """The layers at which these packets end, and the packets of each.

    `layers`: the readers of headers. They read the headers again to determine the last one.
    `with_ports`: whether UDP ports without a name are layers of their own; there may be thousands.
    """
    columns = records.columns[rows]
    packets = Packets(replace(records, columns=columns, number=records.number[rows]))
    ends: dict[Label, list[Int64]] = defaultdict(list)
    has_ended = packets.kind < FIRST_HEADER
    _group(ends, "link type", np.flatnonzero(has_ended), columns.link[has_ended])
    for _ in range(MAX_LAYERS):
        kind, at = packets.kind.copy(), packets.at.copy()
        groups = packets.groups(layers)
        for each, indices in groups:
            layers[each](packets, indices)
        has_ended = (packets.kind != kind) & (packets.kind < FIRST_HEADER)
        for each in map(Kind, np.unique(kind[has_ended]).tolist()):
            index = np.flatnonzero(has_ended & (kind == each))
            if each in _NUMBERS:
                number = _numbers(each, packets.data, at[index])
                if each == Kind.UDP and not with_ports:
                    is_service = np.isin(number, SERVICES)
                    ends[_OTHER_PORTS].append(index[~is_service])
                    index, number = index[is_service], number[is_service]
                _group(ends, _NUMBERS[each][0], index, number)
            else:
                ends[Label(f"an unknown form of {_FORMS.get(each, each.name)}")].append(index)
        if not groups:
            break
    fragments = np.flatnonzero(packets.kind >= FIRST_HEADER)
    if len(fragments):
        ends[_FRAGMENTS].append(fragments)
    return {label: rows[np.concatenate(parts)] for label, parts in ends.items()}


def _group(
    ends: dict[Label, list[Int64]], layer: str, index: Int64, number: NDArray[np.integer]
) -> None:
    """Add packets by the number of their layer."""
    order = np.argsort(number, kind="stable")
    numbers, first = np.unique(number[order], return_index=True)
    for each, part in zip(numbers.tolist(), np.split(index[order], first[1:]), strict=False):
        ends[Label(layer, each)].append(part)


def _numbers(kind: Kind, data: Bytes, at: Int64) -> Int64:
    """The numbers of the layers after headers of `kind`."""
    _, offset, size = _NUMBERS[kind]
    number = _number(data, at + offset, size)
    if kind != Kind.UDP:
        return number
    # In packets of the server, the port of the service is the source.
    source = _number(data, at, size)
    return np.where(np.isin(source, SERVICES) & ~np.isin(number, SERVICES), source, number)


def _number(data: Bytes, at: Int64, size: int) -> Int64:
    number = np.zeros(len(at), np.int64)
    for offset in range(size):
        number = number << 8 | data[at + offset]
    return number


def problems(
    packets: Packets,
    records: PacketRecords,
    capture: Int32,
    names: Names,
    labels: Mapping[int, Label],
) -> list[Problem]:
    """A row for each kind of unreadable packet and each file."""
    is_foreign = (packets.kind == Kind.MALFORMED) & (packets.at == records.columns.start)
    groups = [
        (title, text, np.flatnonzero((packets.kind == kind) & ~is_foreign))
        for kind, (title, text) in _PROBLEMS.items()
    ]
    for title, text, is_chosen in (
        ("malformed_headers", _FOREIGN, is_foreign),
        ("unknown_link", "of {}, which is not supported", packets.kind == Kind.UNKNOWN_LINK),
    ):
        for link in np.unique(records.columns.link[is_chosen]).tolist():
            rows = np.flatnonzero(is_chosen & (records.columns.link == link))
            groups.append((title, text.format(Label("link type", link)), rows))
    groups += _unread(packets, labels)
    return [
        _problem(title, text, rows[capture[rows] == each], records, names[each])
        for title, text, rows in groups
        for each in np.unique(capture[rows]).tolist()
    ]


def _unread(packets: Packets, labels: Mapping[int, Label]) -> Iterator[tuple[str, str, Int64]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, label in labels.items():
        if packets.kind[row] == Kind.OTHER:
            rows[str(label)].append(row)
    by_count = sorted(rows.items(), key=lambda item: -len(item[1]))
    if not rows:
        return  # the import of scapy takes half a second
    hint = "" if by_packet.has_scapy() else _HINT
    for layer, packet_rows in by_count[:LABELS]:
        text = f"TCP inside {layer}, which is not supported{hint}"
        yield "unread_layer", text, np.array(packet_rows)
    others = [row for _, packet_rows in by_count[LABELS:] for row in packet_rows]
    yield "unread_layer", "TCP inside other layers", np.array(sorted(others), np.int64)


def _problem(title: str, text: str, rows: Int64, records: PacketRecords, name: str) -> Problem:
    first = int(rows[0])
    return Problem(
        "packets",
        title,
        f"{packets_are(len(rows))} {text}",
        time=int(records.columns.time[first]),
        capture=name,
        packet=int(records.number[first]),
        bytes=int(records.columns.captured[rows].sum()),
        count=len(rows),
    )

"""Layers that are read packet by packet, with dpkt and scapy.

dpkt reads IEEE 802.11, for unencrypted data frames. scapy, if installed, reads further layers in
which `unread_layers` found TCP. Both only locate the next header; from there on, these packets are
read like all others. So traffic without these layers has no extra cost.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from dissector.packets.formats.capture_reader import PacketRecords
from dissector.packets.layers.headers import Kind, Layer, Packets, Rows
from dissector.packets.layers.layer_names import Label

_WLAN = np.dtype([("control", "u1"), ("flags", "u1")])
_DATA, _QOS_DATA = 0x08, 0x88
_PROTECTED, _ORDER = 0x40, 0x80
_AGGREGATE = 0x80
_SUBFRAME = struct.Struct(">12xH")
_SNAP = b"\xaa\xaa\x03"
_MODULES: Final = ("scapy.layers.all", "scapy.contrib.avs")


def _wlan(packets: Packets, rows: Rows) -> None:
    """IEEE 802.11: LLC in data frames that are not encrypted."""
    rows, header = packets.header(rows, _WLAN)
    control, flags = header["control"], header["flags"]
    is_swapped = (control & 0x0F != _DATA) & (flags & 0x0F == _DATA)  # by access points of Cisco
    control, flags = np.where(is_swapped, [flags, control], [control, flags])
    is_data = ((control == _DATA) | (control == _QOS_DATA)) & (flags & _PROTECTED == 0)
    packets.kind[rows] = Kind.OTHER
    for row in np.arange(len(packets.kind))[rows][is_data].tolist():
        at, end = int(packets.at[row]), int(packets.end[row])
        is_cut = end < int(packets.wire_end[row])
        size = _wlan_size(packets.data[at:end].tobytes())
        if size is not None:
            packets.kind[row] = Kind.LLC
            packets.at[row] += size
        elif is_cut:
            packets.kind[row] = Kind.CUT


def _wlan_size(frame: bytes) -> int | None:
    """Bytes before LLC; None if there is no LLC, or more than one."""
    # Imported here: it takes longer than all other work on a small capture.
    from dpkt.dpkt import Error
    from dpkt.ieee80211 import IEEE80211

    if frame[0] & 0x0F != _DATA:
        frame = frame[1::-1] + frame[2:]
    try:
        parsed = IEEE80211(frame)
    except (Error, struct.error, IndexError):
        return None
    body = bytes(parsed.data)
    size = len(frame) - len(body)
    is_aggregate = False
    if frame[0] == _QOS_DATA:
        is_aggregate = frame[size - 2] & _AGGREGATE != 0
        size += 4 * (frame[1] & _ORDER != 0)  # HT control
    own = _SUBFRAME.size if is_aggregate else 0
    padded = size + -size % 4  # some drivers align the next header
    has_padding = frame[padded + own : padded + own + len(_SNAP)] == _SNAP
    begin = padded if has_padding else size
    return _subframe(frame, begin) if is_aggregate else begin


def _subframe(frame: bytes, size: int) -> int | None:
    """Bytes before LLC in an aggregate with a single frame; None if it has several frames."""
    if len(frame) < size + _SUBFRAME.size:
        return None
    (length,) = _SUBFRAME.unpack_from(frame, size)
    size += _SUBFRAME.size
    return size if size + length + _SUBFRAME.size > len(frame) else None


LAYERS: dict[Kind, Layer] = {Kind.WLAN: _wlan}


def open_by_scapy(packets: Packets, records: PacketRecords, labels: Mapping[int, Label]) -> bool:
    """Move packets that scapy can read to the IP header before TCP. Returns whether any moved.

    `labels`: by packet, the unsupported layer.
    """
    columns = records.columns
    is_opened = False
    for row, label in labels.items():
        begin, size = int(columns.start[row]), int(columns.captured[row])
        is_whole = begin <= packets.at[row] <= begin + size  # not reassembled from fragments
        if not (is_whole and has_layer(label)):
            continue
        position = _ip_position(
            records.data[begin : begin + size].tobytes(), int(columns.link[row])
        )
        if position is not None and begin + position >= packets.at[row]:
            packets.kind[row], packets.at[row] = Kind.RAW_IP, begin + position
            packets.end[row] = begin + size
            packets.wire_end[row] = begin + max(size, int(columns.length[row]))
            is_opened = True
    return is_opened


@cache
def has_layer(label: Label) -> bool:
    """Whether scapy is installed and reads the layer of this label."""
    if not has_scapy():
        return False
    from scapy.config import conf
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    link_types = conf.l2types.num2layer
    known = {
        "link type": lambda: label.number in link_types,
        "EtherType": lambda: _is_bound(Ether, "type", label.number),
        "IP protocol": lambda: _is_bound(IP, "proto", label.number),
        "UDP port": lambda: _is_bound(UDP, "dport", label.number),
    }
    return known.get(label.layer, lambda: False)()


def _is_bound(layer: Any, name: str, number: int | None) -> bool:
    return any(fields.get(name) == number for fields, _ in layer.payload_guess)


@cache
def has_scapy() -> bool:
    """Whether scapy is installed."""
    try:
        for name in _MODULES:
            import_module(name)
    except ImportError:
        return False
    return True


def _ip_position(packet: bytes, link: int) -> int | None:
    """Position of the IP header before TCP, as scapy finds it."""
    from scapy.config import conf
    from scapy.error import Scapy_Exception, log_runtime
    from scapy.layers.inet import IP, TCP
    from scapy.layers.inet6 import IPv6

    was_disabled = log_runtime.disabled
    log_runtime.disabled = True  # a row of `problems` reports a packet that scapy cannot read
    try:
        parsed = conf.l2types[link](packet)
    except (Scapy_Exception, struct.error, IndexError, KeyError, ValueError, TypeError):
        return None
    finally:
        log_runtime.disabled = was_disabled
    segment = parsed.getlayer(TCP)
    ip = segment.underlayer if segment is not None else None
    if not isinstance(ip, (IP, IPv6)):
        return None
    position = packet.find(ip.original[:40])
    return position if position >= 0 else None

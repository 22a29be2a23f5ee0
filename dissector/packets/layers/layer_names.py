"""Names of unsupported layers: a number in the layer before, and its meaning."""

from __future__ import annotations

from typing import Final, NamedTuple


class Label(NamedTuple):
    """A layer that is not read here."""

    layer: str
    number: int | None = None

    def __str__(self) -> str:
        if self.number is None:
            return self.layer
        number = f"0x{self.number:04x}" if self.layer in _IN_HEX else str(self.number)
        name = _NAMES.get(self.layer, {}).get(self.number)
        return f"{self.layer} {number}" + (f" ({name})" if name else "")


_IN_HEX: Final = {"EtherType", "GRE protocol", "GENEVE protocol", "PPP protocol", "SNAP protocol"}
_NAMES: Final[dict[str, dict[int, str]]] = {
    "link type": {
        0: "BSD loopback", 1: "Ethernet", 6: "token ring", 7: "ARCNET", 8: "SLIP", 10: "FDDI",
        12: "raw IP", 14: "raw IP", 101: "raw IP", 107: "frame relay", 113: "Linux cooked",
        119: "Prism and 802.11", 122: "IP over Fibre Channel", 123: "SunATM", 129: "ARCNET",
        143: "DOCSIS", 163: "AVS and 802.11", 187: "Bluetooth", 189: "USB",
        195: "802.15.4", 197: "ERF", 201: "Bluetooth", 206: "frame relay", 220: "USB", 227: "CAN",
        249: "USB", 251: "Bluetooth LE", 252: "Wireshark's upper PDU", 253: "netlink",
        270: "LoRaTap", 276: "Linux cooked v2", 280: "VPP", 281: "Broadcom tag", 283: "DSA tag",
        -1: "not described in the file", -2: "of too many interfaces",
        **{number: f"for private use: USER{number - 147}" for number in range(147, 163)},
    },
    "EtherType": {
        0x0806: "ARP", 0x8137: "IPX", 0x8809: "LACP", 0x888E: "802.1X", 0x8892: "PROFINET",
        0x88A4: "EtherCAT", 0x88B5: "experimental", 0x88B6: "experimental", 0x88CC: "LLDP",
        0x88F7: "PTP", 0x8906: "FCoE", 0xED3E: "IFE",
    },
    "IP protocol": {
        1: "ICMP", 2: "IGMP", 50: "ESP", 55: "minimal encapsulation", 58: "ICMPv6", 88: "EIGRP",
        89: "OSPF", 103: "PIM", 108: "IPComp", 112: "VRRP", 115: "L2TPv3", 132: "SCTP",
    },
    "LLC service": {0x42: "spanning tree"},
    "UDP port": {
        53: "DNS", 67: "DHCP", 68: "DHCP", 123: "NTP", 137: "NetBIOS", 161: "SNMP", 500: "IKE",
        514: "syslog", 1900: "SSDP", 5353: "mDNS", 5355: "LLMNR", 8125: "StatsD",
        434: "Mobile IP", 443: "QUIC", 2055: "NetFlow", 4500: "ESP", 4739: "IPFIX",
        5246: "CAPWAP control", 5247: "CAPWAP", 5555: "FOU", 6080: "GUE", 6343: "sFlow",
        9060: "HEP", 51820: "WireGuard",
    },
}  # fmt: skip
"""Meaning of numbers, by layer."""
SERVICES: Final = tuple(_NAMES["UDP port"])
"""UDP ports with a name."""

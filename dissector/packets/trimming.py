"""Packets without a part of their TCP payload, or with other sequence numbers.

The headers of a trimmed packet describe what remains: the sequence number is that of the first
remaining byte, and the length of the IP packet and both checksums fit. Headers outside this IP
packet, as those of a tunnel, remain as they were captured.
"""

from __future__ import annotations

import struct

from dissector.arrays import value
from dissector.packets.block import FIN, MAPPED, SYN

_TCP = 6
_TCP_BYTES = 20
"""Bytes of a TCP header without options."""


@value
class Segment:
    """The header fields that identify a TCP segment in its packet."""

    src: tuple[int, int]
    """Address of the sender: high and low as in `PacketBlock`."""
    dst: tuple[int, int]
    src_port: int
    dst_port: int
    seq: int
    ack: int
    length: int
    """Payload bytes on the wire."""
    is_syn: bool = False

    def sequence(self, position: int) -> int:
        """Sequence number of a part that begins at this position of the payload. A SYN has one of
        its own, so it stays with the first byte (RFC 7413)."""
        return (self.seq + position + (self.is_syn and position > 0)) & 0xFFFFFFFF


def trimmed(
    packet: bytes, segment: Segment, begin: int, end: int, numbers: tuple[int, int] | None = None
) -> bytes | None:
    """The packet with the payload bytes [begin, end) only.

    `numbers`: its sequence number and acknowledgement; None: as captured.

    None if the packet does not contain the headers of the segment, as for reassembled fragments.
    """
    ports = struct.pack(">HHII", segment.src_port, segment.dst_port, segment.seq, segment.ack)
    tcp = packet.find(ports)
    addresses = _addresses(segment)
    ip = _ip_header(packet, tcp, addresses)
    if tcp < 0 or ip is None or len(packet) < tcp + _TCP_BYTES:
        return None
    payload = tcp + (packet[tcp + 12] >> 4) * 4
    if not tcp + _TCP_BYTES <= payload <= len(packet):
        return None
    result = bytearray(packet[:payload] + packet[payload + begin : payload + end])
    struct.pack_into(">II", result, tcp + 4, *(numbers or (segment.sequence(begin), segment.ack)))
    if begin:
        result[tcp + 13] &= ~SYN & 0xFF
    if end < segment.length:
        result[tcp + 13] &= ~FIN & 0xFF
    _set_length(result, ip, payload + end - begin - ip)
    if len(result) == payload + end - begin:
        _set_tcp_checksum(result, tcp, addresses)
    return bytes(result)


def _ip_header(packet: bytes, tcp: int, addresses: bytes) -> int | None:
    """Position of the IP header in front of the TCP header."""
    is_ipv4 = len(addresses) == 8
    at = packet.rfind(addresses, 0, max(tcp, 0)) - (12 if is_ipv4 else 8)
    return at if at >= 0 and packet[at] >> 4 == (4 if is_ipv4 else 6) else None


def _addresses(segment: Segment) -> bytes:
    """Both addresses as they are in the IP header."""
    if segment.src[0] == 0 and segment.src[1] >> 32 == MAPPED >> 32:
        return struct.pack(">II", segment.src[1] & 0xFFFFFFFF, segment.dst[1] & 0xFFFFFFFF)
    return struct.pack(">4Q", *segment.src, *segment.dst)


def _set_length(packet: bytearray, ip: int, length: int) -> None:
    """Set the length of the IP packet; for IPv4 with its header checksum."""
    if packet[ip] >> 4 == 6:
        struct.pack_into(">H", packet, ip + 4, length - 40)
        return
    struct.pack_into(">H", packet, ip + 2, length)
    header = ip + (packet[ip] & 15) * 4
    packet[ip + 10 : ip + 12] = bytes(2)
    struct.pack_into(">H", packet, ip + 10, _checksum(packet[ip:header]))


def _set_tcp_checksum(packet: bytearray, tcp: int, addresses: bytes) -> None:
    """RFC 9293, section 3.1: over a pseudo header with the addresses, then the segment."""
    packet[tcp + 16 : tcp + 18] = bytes(2)
    pseudo = addresses + struct.pack(">II", _TCP, len(packet) - tcp)
    struct.pack_into(">H", packet, tcp + 16, _checksum(bytearray(pseudo) + packet[tcp:]))


def _checksum(data: bytearray) -> int:
    """The Internet checksum (RFC 1071)."""
    from dpkt.dpkt import in_cksum  # takes longer to import than all else on a small capture

    return int(in_cksum(data))

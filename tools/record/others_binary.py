"""Short exchanges of binary protocols, written from their specifications.

Each is a list of alternating messages, starting with the client's; an empty one is skipped. Like
Kafka's, they have a length or zeros at the beginning, and small numbers after it.
"""

from __future__ import annotations

import struct
from typing import Final

pack = struct.pack


def _sized(format: str, message: bytes) -> bytes:
    """A length in front of a message."""
    return pack(format, len(message)) + message


def _diameter(flags: int, command: int, *pairs: tuple[int, bytes]) -> bytes:
    """RFC 6733, section 3; attributes without vendor."""
    body = b""
    for code, value in pairs:
        body += pack(">IBBH", code, 0x40, 0, 8 + len(value)) + value + bytes(-len(value) % 4)
    return (
        pack(">II", 1 << 24 | 20 + len(body), flags << 24 | command) + pack(">III", 0, 7, 9) + body
    )


def _record(xid: int, *numbers: int, tail: bytes = b"") -> bytes:
    """A record of ONC RPC, the last fragment of its message (RFC 5531, section 11)."""
    body = pack(f">{len(numbers) + 1}I", xid, *numbers) + tail
    return pack(">I", 1 << 31 | len(body)) + body


def _smpp(command: int, sequence: int, body: bytes = b"") -> bytes:
    return pack(">IIII", 16 + len(body), command, 0, sequence) + body


def _thrift(kind: int, name: bytes, sequence: int, fields: bytes) -> bytes:
    """Binary protocol in a framed transport."""
    head = pack(">I", 0x80010000 | kind) + _sized(">I", name) + pack(">I", sequence)
    return _sized(">I", head + fields + b"\0")


def _mongo(request: int, answers: int, document: bytes) -> bytes:
    """OP_MSG with one document."""
    body = pack("<IB", 0, 0) + pack("<I", len(document) + 5) + document + b"\0"
    return pack("<IIII", 16 + len(body), request, answers, 2013) + body


def _cassandra(version: int, stream: int, opcode: int, body: bytes) -> bytes:
    return pack(">BBHB", version, 0, stream, opcode) + _sized(">I", body)


def _smb(message: bytes) -> bytes:
    """SMB2 behind the length of the NetBIOS session service."""
    return _sized(">I", b"\xfeSMB" + pack("<HHIHHIIQ", 64, 0, 0, 0, 1, 0, 0, 0) + message)


def _bgp(kind: int, body: bytes = b"") -> bytes:
    return b"\xff" * 16 + pack(">HB", 19 + len(body), kind) + body


def _dce(kind: int, call: int, body: bytes) -> bytes:
    return pack("<BBBBIHHI", 5, 0, kind, 3, 0x10, 16 + len(body), 0, call) + body


def _iscsi(opcode: int, task: int, text: bytes) -> bytes:
    head = pack(">BBH", opcode, 0x87, 0) + pack(">I", len(text)) + bytes(8)
    return head + pack(">IIII", task, 0, 1, 1) + bytes(16) + text + bytes(-len(text) % 4)


def _raft(term: int, index: int, entry: bytes) -> bytes:
    """Length, type, sender, receiver, term, index and an entry, as in common raft libraries."""
    return _sized(">I", pack(">HHIQQ", 3, 1, term, term, index) + _sized(">I", entry))


def _doip(kind: int, body: bytes) -> bytes:
    """ISO 13400-2: version, its complement, type, length."""
    return pack(">BBHI", 2, 0xFD, kind, len(body)) + body


def _llmnr(flags: int, answer: bytes = b"") -> bytes:
    """RFC 4795, over TCP: a length of two bytes, and no additional section."""
    head = pack(">HHHHHH", 0x1234, flags, 1, bool(answer), 0, 0)
    return _sized(">H", head + b"\x0bworkstation\0\0\1\0\1" + answer)


EXCHANGES: Final[dict[str, tuple[int, list[bytes]]]] = {
    "doip": (13400, [
        _doip(5, bytes.fromhex("0e8000" + "00" * 4)),
        _doip(6, bytes.fromhex("0e80004b10" + "00" * 4)),
        _doip(0x8001, bytes.fromhex("0e80004b22f190")), _doip(0x8002, bytes.fromhex("004b0e8000")),
        _doip(0x8001, bytes.fromhex("0e80004b22fd31")),
        _doip(0x8002, bytes.fromhex("004b0e000022fd31")),
    ]),
    "llmnr": (5355, [_llmnr(0), _llmnr(0x8000, b"\xc0\x0c\0\1\0\1\0\0\0\x1e\0\4\xc0\0\2\7")]),
    "smpp": (2775, [
        _smpp(9, 1, b"esme\0secret\0\0\x34\0\0\0"), _smpp(0x80000009, 1, b"smsc\0"),
        _smpp(4, 2, b"\0\1\1" + b"15550001\0\1\1" + b"15550002\0" + bytes(9) + b"\5hello"),
        _smpp(0x80000004, 2, b"42\0"), _smpp(0x15, 3), _smpp(0x80000015, 3),
    ]),
    "diameter": (3868, [
        _diameter(0x80, 257, (264, b"client.test"), (296, b"test"), (266, bytes(4))),
        _diameter(0, 257, (268, pack(">I", 2001)), (264, b"server.test")),
        _diameter(0x80, 280, (264, b"client.test")), _diameter(0, 280, (268, pack(">I", 2001))),
    ]),
    "nfs": (2049, [
        message for xid in range(65540, 65546) for message in (
            _record(xid, 0, 2, 100003, 3, xid % 4, 1, 24, 0, 4, 0x61626364, 0, 0, 0, 0, 0),
            _record(xid, 1, 0, 0, 0, 0, 0, tail=bytes(84)),
        )
    ]),
    "thrift": (9090, [
        message for number in range(1, 6) for message in (
            _thrift(1, b"getUser", number, b"\x08\0\1" + pack(">I", number)),
            _thrift(2, b"getUser", number, b"\x0b\0\0" + _sized(">I", b"name " * number)),
        )
    ]),
    "mongodb": (27017, [
        message for number in range(1, 6) for message in (
            _mongo(number, 0, b"\x10ping\0\1\0\0\0\x02$db\0\6\0\0\0admin\0"),
            _mongo(90 + number, number, b"\x01ok\0" + pack("<d", 1)),
        )
    ]),
    "cassandra": (9042, [
        _cassandra(4, 0, 1, pack(">H", 1) + _sized(">H", b"CQL_VERSION") + _sized(">H", b"3.0.0")),
        _cassandra(0x84, 0, 2, b""),
        _cassandra(4, 1, 7, _sized(">I", b"SELECT * FROM t") + b"\0\1\0"),
        _cassandra(0x84, 1, 8, pack(">II", 2, 0) + bytes(40)),
    ]),
    "smb": (445, [
        _smb(pack("<HHHHI", 36, 1, 1, 0, 0) + bytes(16) + pack("<QH", 0, 0x302)),
        _smb(pack("<HHHH", 65, 1, 0x302, 0) + bytes(56)),
        _smb(pack("<HBBIIHHQ", 25, 0, 1, 0, 0, 88, 40, 0) + b"NTLMSSP\0\1" + bytes(31)),
    ]),
    "bgp": (179, [
        _bgp(1, pack(">BHHIB", 4, 64512, 180, 0x0A000001, 0)),
        _bgp(1, pack(">BHHIB", 4, 64513, 180, 0x0A000002, 0)), _bgp(4), _bgp(4),
        _bgp(2, pack(">HH", 0, 0)), _bgp(2, pack(">HH", 3, 0) + b"\x10\x0a\x01"),
    ]),
    "dcerpc": (135, [
        _dce(11, 2, pack("<HHIB3xHBx", 5840, 5840, 0, 1, 0, 1) + bytes(40)),
        _dce(12, 2, pack("<HHI", 5840, 5840, 0x53F0) + b"\4\000135\0" + bytes(27)),
        _dce(0, 3, pack("<IHH", 24, 0, 3) + bytes(24)),
        _dce(2, 3, pack("<IHH", 8, 0, 0) + bytes(8)),
    ]),
    "iscsi": (3260, [
        _iscsi(0x43, 1, b"InitiatorName=iqn.test\0SessionType=Discovery\0"),
        _iscsi(0x23, 1, b"TargetPortalGroupTag=1\0"), _iscsi(4, 2, b"SendTargets=All\0"),
        _iscsi(0x24, 2, b"TargetName=iqn.test:disk\0"),
    ]),
    "raft": (2380, [
        message for number in range(1, 8) for message in (
            _raft(1, number, b"set %d" % number), _raft(1, number, b""),
        )
    ]),
    "ldap": (389, [
        bytes.fromhex("300c020101600702010304008000"),
        bytes.fromhex("300c02010161070a010004000400"),
        bytes.fromhex("3025020102632004000a01000a0100020100020100010100870b6f626a656374436c6173733000"),
        bytes.fromhex("300c02010265070a010004000400"),
    ]),
    "modbus": (502, [
        message for number in range(6) for message in (
            pack(">HHHBBHH", number, 0, 6, 1, 3, 0, 10),
            pack(">HHHBBB", number, 0, 23, 1, 3, 20) + bytes(20),
        )
    ]),
    "iec104": (2404, [
        b"\x68\4\7\0\0\0", b"\x68\4\x0b\0\0\0", b"\x68\x0e\0\0\0\0\x64\1\6\0\1\0\0\0\0\x14",
        b"\x68\x0e\0\0\2\0\x64\1\7\0\1\0\0\0\0\x14",
    ]),
    "bitcoin": (8333, [
        b"\xf9\xbe\xb4\xd9version\0\0\0\0\0" + pack("<I", 86) + b"\1\2\3\4" + bytes(86),
        b"\xf9\xbe\xb4\xd9verack\0\0\0\0\0\0\0\0\0\0\x5d\xf6\xe0\xe2",
    ]),
    "tds": (1433, [
        b"\x12\1\0\x2f\0\0\1\0\0\0\x1a\0\6\1\0\x20\0\1\2\0\x21\0\1\3\0\x22\0\4\4\0\x26\0\1\xff"
        + bytes(13),
        b"\4\1\0\x1b\0\0\1\0\0\0\x06\0\6\1\0\x0c\0\1\xff" + bytes(8),
    ]),
    "rtmp": (1935, [
        b"\3" + bytes(8) + bytes(range(256)) * 6, b"\3" + bytes(8) + bytes(range(256)) * 12,
        b"\3\0\0\0\0\0\x19\x14\0\0\0\0\2\0\7connect\0\x3f\xf0" + bytes(6) + b"\5\0\0",
        b"\2\0\0\0\0\0\4\5\0\0\0\0\0\x26\x25\xa0",
    ]),
    "x11": (6000, [
        b"l\0\x0b\0\0\0\0\0\0\0\0\0", b"\1\0\x0b\0\0\0\2\0" + bytes(8),
        b"\x62\0\5\0\x0c\0\0\0BIG-REQUESTS", b"\1\0\1\0" + bytes(28),
    ]),
    "vnc": (5900, [
        b"", b"RFB 003.008\n", b"RFB 003.008\n", b"\1\1", b"\1", bytes(4), b"\1",
        pack(">HHBBBBHHHBBB3x", 800, 600, 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
        + _sized(">I", b"desktop"),
        b"\3\0\0\0\0\0\3\x20\2\x58", bytes(2) + pack(">HHHHHi", 1, 0, 0, 4, 4, 0) + bytes(64),
    ]),
    "dicom": (104, [
        b"\1\0\0\0\0\x44\0\1\0\0" + b"SERVER".ljust(16) + b"CLIENT".ljust(16) + bytes(32),
        b"\2\0\0\0\0\x44\0\1\0\0" + b"SERVER".ljust(16) + b"CLIENT".ljust(16) + bytes(32),
        b"\5\0\0\0\0\4" + bytes(4), b"\6\0\0\0\0\4" + bytes(4),
    ]),
    "oracle": (1521, [
        pack(">HHBBH", 58, 0, 1, 0, 0) + pack(">HHHHHHHH", 312, 300, 0, 8192, 32767, 1, 0, 1)
        + bytes(34),
        pack(">HHBBH", 8, 0, 11, 0, 0), pack(">HHBBH", 24, 0, 2, 0, 0) + bytes(16),
    ]),
    "hadoop": (8020, [
        b"hrpc\x09\0\0" + b"\0\0\0\x1e\x1a\x08\2\x10\0\x18\xfd\xff\xff\xff\x0f" + bytes(19),
        _sized(">I", b"\x0c\x08\0\x10\0\x18\x09\x3a\0\x40\1" + b"\0" * 20),
    ]),
    "ceph": (6789, [
        b"ceph v2\n\x10\0" + bytes(16), b"ceph v2\n\x10\0" + bytes(16),
        b"\1\1\x20\0\0\0\x08\0" + bytes(24), b"\1\1\x20\0\0\0\x08\0" + bytes(24),
    ]),
    "zeros": (7000, [bytes(40), bytes(400), bytes(14), bytes(4000)]),
}  # fmt: skip
"""Port and messages, by protocol."""

"""Peers that are libraries, in the loop that people write with them: `python -m bench.loops`.

The loop does the least that finds the messages: the payloads of each direction are joined in order
of arrival, cut by their sizes, and counted. That is less than reassembly, since one packet twice
or out of place would break it, and nothing is decoded. pyshark has tshark decode, and makes objects
of what it writes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

Key = tuple[object, object, int, int]
"""Source and destination, their ports."""
Payloads = Iterator[tuple[Key, bytes]]


def with_dpkt(path: Path) -> Payloads:
    """Payloads, by dpkt."""
    import dpkt

    with path.open("rb") as file:
        for _, data in dpkt.pcap.Reader(file):
            ip = dpkt.ethernet.Ethernet(data).data
            tcp = ip.data
            if tcp.data:
                yield (ip.src, ip.dst, tcp.sport, tcp.dport), tcp.data


def with_scapy(path: Path) -> Payloads:
    """Payloads, by scapy."""
    from scapy.layers.inet import IP, TCP
    from scapy.layers.l2 import Ether  # noqa: F401 -- a reader finds the link layers that are loaded
    from scapy.utils import PcapReader

    with PcapReader(str(path)) as packets:
        for packet in packets:
            ip, tcp = packet[IP], packet[TCP]
            if payload := bytes(tcp.payload):
                yield (ip.src, ip.dst, tcp.sport, tcp.dport), payload


def count(payloads: Payloads) -> int:
    """How many messages the payloads hold."""
    found = 0
    waiting: dict[Key, bytearray] = {}
    for key, payload in payloads:
        buffer = waiting.setdefault(key, bytearray())
        buffer += payload
        at = 0
        while at + 4 <= len(buffer):
            end = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
            if end > len(buffer):
                break
            found += 1
            at = end
        del buffer[:at]
    return found


def with_pyshark(path: Path) -> int:
    """How many messages tshark finds at the broker's ports, by pyshark."""
    import pyshark

    ports = json.loads(path.with_suffix(".json").read_text())["broker_ports"]
    decode = {f"tcp.port=={port}": "kafka" for port in ports}
    with pyshark.FileCapture(str(path), decode_as=decode, keep_packets=False) as packets:
        return sum(layer.layer_name == "kafka" for packet in packets for layer in packet.layers)


LIBRARIES: dict[str, Callable[[Path], int]] = {
    "dpkt": lambda path: count(with_dpkt(path)),
    "scapy": lambda path: count(with_scapy(path)),
    "pyshark": with_pyshark,
}


def main() -> None:
    """Count the messages of a capture with a library."""
    parser = argparse.ArgumentParser(prog="python -m bench.loops", description=main.__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("capture", type=Path)
    options = parser.parse_args()
    print(LIBRARIES[options.library](options.capture))


if __name__ == "__main__":
    main()

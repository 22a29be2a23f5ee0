"""Other libraries, in a typical loop: `python -m bench.loops`.

The loop does the minimum to find messages. It joins the payloads of each direction in order of
arrival, splits them by message size, and counts. This is less than reassembly, because one
retransmitted or reordered packet would break it, and nothing is decoded. pyshark runs tshark and
makes objects of its output.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

Key = tuple[object, object, int, int]
"""Source and destination addresses and ports."""
Payloads = Iterator[tuple[Key, bytes]]


def with_dpkt(path: Path) -> Payloads:
    import dpkt

    with path.open("rb") as file:
        for _, data in dpkt.pcap.Reader(file):
            ip = dpkt.ethernet.Ethernet(data).data
            tcp = ip.data
            if tcp.data:
                yield (ip.src, ip.dst, tcp.sport, tcp.dport), tcp.data


def with_scapy(path: Path) -> Payloads:
    from scapy.layers.inet import IP, TCP
    from scapy.layers.l2 import Ether  # noqa: F401 -- registers the link layer
    from scapy.utils import PcapReader

    with PcapReader(str(path)) as packets:
        for packet in packets:
            ip, tcp = packet[IP], packet[TCP]
            if payload := bytes(tcp.payload):
                yield (ip.src, ip.dst, tcp.sport, tcp.dport), payload


def count(payloads: Payloads) -> int:
    """Number of messages in the payloads."""
    messages = 0
    buffers: dict[Key, bytearray] = {}
    for key, payload in payloads:
        buffer = buffers.setdefault(key, bytearray())
        buffer += payload
        at = 0
        while at + 4 <= len(buffer):
            end = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
            if end > len(buffer):
                break
            messages += 1
            at = end
        del buffer[:at]
    return messages


def with_pyshark(path: Path) -> int:
    """Number of messages that tshark finds at the broker ports, read by pyshark."""
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

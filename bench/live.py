"""Live capture under load: `python -m bench.live`, as root.

The benchmark creates a pair of virtual interfaces in a separate network. One process sends the
large input `bulk` into one end, at a constant rate and without a system call per packet. `sniff`
captures at the other end. Both share the machine's cores with each other and with the kernel. The
result has packets per second, packets that the kernel dropped, and the CPU time of `sniff`. The
number of captured packets must equal the number of sent packets.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from bench.measure import processor_time
from bench.pcap import RECORD, records
from bench.suite import SIZES, Options, make

RATE = 100_000
"""Goal: packets of `SIZE` bytes per second."""
SIZE = 1_500
NEW_NETWORK = 0x40000000
SENDING, CAPTURING = "kafka0", "kafka1"
PAGE = 9464
SNIFF = "import sys; from analysis.cli import main; sys.exit(main())"
BURST = 64
"""Packets per system call."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run."""

    rate: float
    """Sent packets per second."""
    size: float
    """Average bytes per packet."""
    sent: int
    captured: int
    dropped: int
    exchanges: int
    seconds: float
    cpu: float
    """CPU seconds of `sniff`, user and system, while packets were sent."""
    memory: int
    """Peak resident set in bytes."""


def main() -> None:
    """Send Kafka traffic and capture it; exit status 1 if a packet was dropped."""
    parser = argparse.ArgumentParser(prog="python -m bench.live", description=main.__doc__)
    parser.add_argument(
        "--rate",
        type=int,
        nargs="+",
        default=[RATE],
        help=f"packets of {SIZE} bytes per second; smaller packets are sent at the same bytes/s",
    )
    parser.add_argument("--send", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("sniff_options", nargs="*", help="options of sniff, after --")
    options = parser.parse_args()
    if options.send:
        interface, path, rate = options.send
        print(json.dumps(send(interface, Path(path), int(rate))))
        return
    if os.geteuid() != 0:
        sys.exit("needs root, to create a network and capture from it")
    make_network()
    path = make(Options(1.0, 1, lambda work: None), "bulk", "bulk", SIZES["bulk"]).path
    print("packets/s  bytes  MB/s  sent       dropped  exchanges  CPU of sniff  peak memory")
    outcomes = [measure(path, rate, options.sniff_options) for rate in options.rate]
    for outcome in outcomes:
        print(
            f"{outcome.rate:9,.0f}  {outcome.size:5.0f}  {outcome.rate * outcome.size / 1e6:4.0f}  "
            f"{outcome.sent:9,}  {outcome.dropped:7,}  {outcome.exchanges:9,}  "
            f"{outcome.cpu / outcome.seconds:8.0%} of a core  {outcome.memory / 1e6:6.0f} MB"
        )
        if outcome.captured + outcome.dropped != outcome.sent:
            sys.exit(f"{outcome.sent} packets were sent, but {outcome.captured} captured")
    sys.exit(any(outcome.dropped for outcome in outcomes))


def make_network() -> None:
    """Enter a new network with a pair of interfaces, which accept packets of any size."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "cannot create a network")
    for line in (
        f"link add {SENDING} mtu 65535 type veth peer name {CAPTURING} mtu 65535",
        *(f"link set {name} up" for name in ("lo", SENDING, CAPTURING)),
    ):
        subprocess.run(["ip", *line.split()], check=True)
    # Without addresses, these interfaces carry no other traffic.
    for name in (SENDING, CAPTURING):
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")


def measure(path: Path, rate: int, options: list[str]) -> Outcome:
    """Capture while the input is sent once."""
    line = [sys.executable, "-c", SNIFF, "sniff", "-i", CAPTURING, "--view", "none"]
    with tempfile.TemporaryFile("w+") as errors:
        sniffer = subprocess.Popen(
            [*line, "--metrics", str(PAGE), *options], stdout=subprocess.DEVNULL, stderr=errors
        )
        try:
            wait_until_served(sniffer)
            before = processor_time(sniffer.pid)
            sender = [sys.executable, "-m", "bench.live", "--send", SENDING, str(path), str(rate)]
            sent = json.loads(subprocess.run(sender, check=True, capture_output=True).stdout)
            cpu = processor_time(sniffer.pid) - before
            time.sleep(2)  # the last packets may still be in buffers
            metrics = page()
        finally:
            sniffer.send_signal(signal.SIGINT)
            _, status, usage = os.wait4(sniffer.pid, 0)
        errors.seek(0)
        if status:
            sys.exit(errors.read())
    return Outcome(
        rate=sent["packets"] / sent["seconds"],
        size=sent["bytes"] / sent["packets"],
        sent=sent["packets"],
        captured=total(metrics, "captured_packets_total"),
        dropped=total(metrics, "dropped_packets_total"),
        exchanges=total(metrics, "exchanges_total"),
        seconds=sent["seconds"],
        cpu=cpu,
        memory=usage.ru_maxrss * 1024,
    )


def wait_until_served(sniffer: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if sniffer.poll() is not None:
            sys.exit("sniff ended before the first packet")
        try:
            page()
        except OSError:
            time.sleep(0.1)
        else:
            return
    sys.exit("sniff does not start")


def page() -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{PAGE}/metrics", timeout=10) as response:
        text: str = response.read().decode()
    return text


def total(metrics: str, name: str) -> int:
    """A counter, summed over its labels."""
    values = re.findall(rf"^kafka_dissector_{name}(?:{{.*}})? (\S+)$", metrics, re.MULTILINE)
    return int(sum(map(float, values)))


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """mmsghdr of sendmmsg(2)."""

    _fields_ = (
        ("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32),
        ("pieces", ctypes.c_void_p), ("count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int), ("sent", ctypes.c_uint32),
    )  # fmt: skip


def send(interface: str, path: Path, rate: int) -> dict[str, float]:
    """Send all packets of a little-endian pcap at a rate; returns packets, bytes and seconds."""
    with path.open("rb") as file, socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as out:
        out.bind((interface, 0))
        out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        memory = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        places = [(at + RECORD, size - RECORD) for at, size in records(memory)]
        pieces = (_Piece * len(places))(*((start + at, size) for at, size in places))
        messages = (_Message * len(places))()
        width = ctypes.sizeof(_Piece)
        first = ctypes.addressof(pieces)
        for index, message in enumerate(messages):
            message.pieces, message.count = first + index * width, 1
        size = sum(size for _, size in places) / len(places)
        begin = time.perf_counter()
        burst(out, messages, rate * SIZE / size)
        seconds = time.perf_counter() - begin
        return {"packets": len(places), "bytes": size * len(places), "seconds": seconds}


def burst(out: socket.socket, messages: ctypes.Array[_Message], rate: float) -> None:
    """Send bursts at their due times."""
    libc = ctypes.CDLL(None, use_errno=True)
    base, width, count = ctypes.addressof(messages), ctypes.sizeof(_Message), len(messages)
    begin, sent = time.perf_counter(), 0
    while sent < count:
        wait = begin + sent / rate - time.perf_counter()
        if wait > 0.0005:
            time.sleep(wait)
        step = libc.sendmmsg(
            out.fileno(), ctypes.c_void_p(base + sent * width), min(BURST, count - sent), 0
        )
        if step < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        sent += step


if __name__ == "__main__":
    main()

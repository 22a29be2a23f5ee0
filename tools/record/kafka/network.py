"""Two hosts, and a network between them that loses, repeats, delays and reorders packets.

Each host has a TUN device in its own network namespace. This process forwards packets from one
device to the other, or drops them. Unlike `tc netem`, it has a seed and needs no kernel module. A
TUN device carries whole IP packets with checksums, in the sizes of a real network, so a capture on
it looks like one of a real network. Addresses are those of RFC 5737.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import struct
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Self

from tools.record.kafka.recording import Recording, end

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
NEAR, FAR = "198.51.100.1", "198.51.100.2"
INNER_NEAR, INNER_FAR = "203.0.113.1", "203.0.113.2"


@dataclass(frozen=True, slots=True)
class Weather:
    """Probabilities of damage, for each packet independently."""

    loss: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    """Probability of a delay that reorders packets."""
    delay_ms: float = 1.0


class Wire:
    """A context manager: device `near` with address NEAR here; a host with FAR across the wire."""

    def __init__(self, recording: Recording, weather: Weather, *, vxlan: bool = False) -> None:
        self.near, self.far = (INNER_NEAR, INNER_FAR) if vxlan else (NEAR, FAR)
        self._recording = recording
        self._weather = weather
        self._vxlan = vxlan
        self._random = Random(4)
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._files = (tun("near"), tun("far"))
        self._host = host(self._recording, "host")
        ip("link", "set", "far", "netns", f"{self._host.pid}")
        self._address([], "near", NEAR, FAR)
        self._address(self.there, "far", FAR, NEAR)
        if self._vxlan:
            self._tunnel([], "near", NEAR, FAR, INNER_NEAR)
            self._tunnel(self.there, "far", FAR, NEAR, INNER_FAR)
        self._carrier = threading.Thread(target=self._carry)
        self._carrier.start()
        return self

    @property
    def there(self) -> list[str]:
        """Prefix of commands that run on the other host."""
        return inside(self._host)

    def _address(self, where: list[str], device: str, own: str, other: str) -> None:
        ip("address", "add", own, "peer", other, "dev", device, where=where)
        ip("link", "set", device, "up", "mtu", "1500", where=where)

    def _tunnel(self, where: list[str], device: str, own: str, other: str, inner: str) -> None:
        ends = ["local", own, "remote", other, "dstport", "4789", "dev", device]
        ip("link", "add", "inner", "type", "vxlan", "id", "42", *ends, where=where)
        ip("address", "add", f"{inner}/24", "dev", "inner", where=where)
        ip("link", "set", "inner", "up", where=where)

    def _carry(self) -> None:
        """Forward packets until the recording ends."""
        waiting: list[tuple[float, int, int, bytes]] = []
        count = 0
        other = {self._files[0]: self._files[1], self._files[1]: self._files[0]}
        while not self._over.is_set():
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, file, packet = heapq.heappop(waiting)
                os.write(file, packet)
            pause = min(0.05, waiting[0][0] - now) if waiting else 0.05
            for file in select.select(self._files, [], [], pause)[0]:
                packet = os.read(file, 65536)
                for held in self._fate():
                    count += 1
                    due = time.monotonic() + held / 1000
                    heapq.heappush(waiting, (due, count, other[file], packet))

    def _fate(self) -> list[float]:
        """Delay in ms of each copy of a packet; empty if it is lost."""
        weather, chance = self._weather, self._random.random
        if chance() < weather.loss:
            return []
        times = 2 if chance() < weather.twice else 1
        late = [5 + 20 * chance() if chance() < weather.late else 0 for _ in range(times)]
        return [weather.delay_ms + delay for delay in late]

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._carrier.join(5)
        end(self._host)
        for file in self._files:
            os.close(file)


class Subnet:
    """A separate subnet with a host for clients; this host has its first address.

    This host forwards packets between subnets, so that each packet is once on the interface `any`.
    """

    def __init__(self, recording: Recording, name: str, prefix: str) -> None:
        """`prefix`: of its addresses, such as ``10.1.0.``; `name`: of the interface here."""
        self.near, far = f"{prefix}1", f"{prefix}9"
        process = host(recording, name)
        self.there = inside(process)
        """Prefix of commands that run on the host of clients."""
        peer = ["peer", "name", "inside", "netns", f"{process.pid}"]
        ip("link", "add", name, "type", "veth", *peer)
        for where, device, address in (([], name, self.near), (self.there, "inside", far)):
            ip("address", "add", f"{address}/24", "dev", device, where=where)
            ip("link", "set", device, "up", where=where)
        ip("route", "add", "default", "via", self.near, where=self.there)


def host(recording: Recording, name: str) -> subprocess.Popen[bytes]:
    """A process that keeps the network namespace of another host alive."""
    process = recording.start(name, ["unshare", "--net", "sleep", "600"])
    while namespace(process.pid) == namespace(os.getpid()):
        time.sleep(0.01)
    return process


def inside(process: subprocess.Popen[bytes]) -> list[str]:
    """Prefix of commands that run in the network namespace of a process."""
    return ["nsenter", f"--net=/proc/{process.pid}/ns/net"]


def tun(name: str) -> int:
    """A new TUN device, as an open file."""
    file = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return file


def ip(*arguments: str, where: list[str] | None = None) -> None:
    """Run iproute2's ip."""
    subprocess.run([*(where or []), "ip", *arguments], check=True)


def namespace(process: int) -> Path:
    return Path(f"/proc/{process}/ns/net").readlink()

"""A recording: a separate network, tcpdump, all processes, and the files written at the end.

    with Recording("kafka-4-clients", "description") as recording:
        ...start brokers and clients...

Entering moves this process into a new network namespace, so download everything before. Leaving
ends each process by its id, stops tcpdump, and writes the capture, its truth and its row in the
ledger. After an exception, it writes nothing and prints the folder of the logs.
"""

from __future__ import annotations

import ctypes
import gzip
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import zstandard

from tools.record import ledger
from tools.record.kafka import artifacts, truth
from tools.record.ledger import CAPTURES, Entry

CLONE_NEWNET = 0x40000000
LARGEST = 400_000
"""Bytes of a capture as committed."""


@dataclass(frozen=True, slots=True)
class Tap:
    """One capture of a recording."""

    path: Path
    about: str
    interface: str
    start: int
    """ns; requests that the broker received earlier are not in the capture."""
    clients: str = ""
    """Prefix of the addresses of clients in the capture."""
    ports: str = ""
    """Suffix of the addresses of brokers in the capture."""
    command: Sequence[str] = ()
    """Command that derives it from another capture, without the path, its last argument."""

    def has(self, row: truth.Row) -> bool:
        """Whether the request of a fact is in the capture."""
        if row["source"] not in ("broker", "envelope"):
            return True
        began = int(row["time"]) - int(row["total_ms"] * 1e6)
        client, broker = str(row["client"]), str(row["broker"])
        here = client.startswith(self.clients) and broker.endswith(self.ports)
        return here and began > self.start

    def counted(self) -> tuple[str, int]:
        """Link type and number of packets, as capinfos reports them."""
        report = artifacts.run(["capinfos", "-T", "-r", "-E", "-c", str(self.path)])
        _, link, packets = report.rstrip("\n").split("\t")
        return link, int(packets)


class Recording:
    """A recording with one capture for each tap."""

    def __init__(self, name: str, about: str) -> None:
        self.name = name
        self.about = about
        self.work = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self.software: list[str] = []
        self._taps: list[Tap] = []
        self._attached: list[Path] = []
        self._events: list[truth.Row] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        artifacts.require("tcpdump", "ip", "java", "capinfos")
        enter_new_network()
        return self

    def tap(
        self,
        name: str | None = None,
        about: str | None = None,
        *,
        interface: str = "lo",
        snaplen: int = 262_144,
        select: str = "tcp",
        clients: str = "",
        ports: str = "",
    ) -> Path:
        """Start a capture on `interface`. `Cluster` calls this if there is no capture yet.

        The capture is NAME.pcap; `name` defaults to the recording's name. If the capture does not
        have all requests, `clients` is the prefix of the client addresses in it, and `ports` the
        suffix of the broker addresses.
        """
        target = self.work / f"{name or self.name}.pcap"
        options = ["--time-stamp-precision=nano", "--immediate-mode", "-U", "-n", "-B", "16384"]
        where = ["-i", interface, "-s", str(snaplen), "-w", str(target), select]
        log = f"tcpdump-{target.stem}"
        self.start(log, ["tcpdump", *options, *where])
        wait_for(lambda: "listening on" in self.log(log), "tcpdump listens", 10)
        now = time.time_ns()
        self._taps.append(Tap(target, about or self.about, interface, now, clients, ports))
        return target

    def derive(self, source: Path, name: str, about: str, *command: str) -> None:
        """Derive another capture at the end by `command SOURCE TARGET`; `name` has its suffix."""
        of = next(tap for tap in self._taps if tap.path == source)
        made = replace(of, path=self.work / name, about=about, command=[*command, str(source)])
        self._taps.append(made)

    def attach(self, suffix: str) -> Path:
        """Store a file that is written during the recording next to the capture, as NAME.SUFFIX."""
        self._attached.append(self.work / f"{self.name}.{suffix}")
        return self._attached[-1]

    @property
    def tapped(self) -> bool:
        """Whether a capture has begun."""
        return bool(self._taps)

    def log(self, name: str) -> str:
        """The output of the process `name` so far."""
        return (self.work / f"{name}.log").read_text(errors="replace")

    def start(
        self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that ends with the recording. Its output goes to NAME.log."""
        with (self.work / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.work,
                env={**os.environ, **(env or {})},
            )
        self._processes.append(process)
        return process

    def run(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        seconds: float = 120,
    ) -> str:
        """Run a process to its end, and return its output. Raises RuntimeError if it fails."""
        if code := self.start(name, command, env).wait(seconds):
            raise RuntimeError(f"{name} ended with {code}:\n{self.log(name)[-4000:]}")
        return self.log(name)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process with SIGKILL."""
        process.kill()
        process.wait(10)

    def note(self, event: str, **facts: truth.Value) -> None:
        """Add an action of the recorder, with its time, to the truth."""
        self._events.append({"source": "recorder", "time": time.time_ns(), "event": event, **facts})

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        time.sleep(0.5)  # the last FINs
        for process in reversed(self._processes):
            end(process)
        if error is None:
            self._finish()
        else:
            error.add_note(f"the logs are in {self.work}")

    def _finish(self) -> None:
        """Write the captures with their truth, and the attached files."""
        rows = [*truth.of_logs(self.work), *self._events]
        for tap in self._taps:
            if tap.command:
                subprocess.run([*tap.command, str(tap.path)], check=True)
            elif "\n0 packets dropped" not in self.log(f"tcpdump-{tap.path.stem}"):
                raise RuntimeError(f"tcpdump lost packets:\n{self.log(f'tcpdump-{tap.path.stem}')}")
            self._keep(tap, [row for row in rows if tap.has(row)])
        for path in self._attached:
            shutil.copy(path, CAPTURES / path.name)
        shutil.rmtree(self.work)

    def _keep(self, tap: Tap, rows: list[truth.Row]) -> None:
        squeezed = pack(tap.path, ".zst", LARGEST)
        target = CAPTURES / f"{tap.path.name}.zst"
        target.write_bytes(squeezed)
        truth.write(CAPTURES / f"{tap.path.stem}.truth.jsonl.zst", rows)
        link, packets = tap.counted()
        entry = Entry(
            capture=target.name,
            about=tap.about,
            broker=", ".join(self.software),
            clients=", ".join(sorted({row["software"] for row in rows if "software" in row})),
            tool=f"tcpdump, {time.strftime('%Y-%m-%d', time.gmtime())}",
            link=f"{tap.interface}, {link}, {tap.path.suffix[1:]} in ns",
            packets=packets,
            requests=sum(row["source"] == "broker" for row in rows),
        )
        ledger.enter(entry, ledger.KAFKA)
        print(f"{entry.line()}{len(squeezed):,} bytes, {len(rows):,} facts")


def pack(path: Path, packing: str, largest: int | None = None) -> bytes:
    """The content of a file, compressed for the suffix `packing`: ``.gz``, ``.zst`` or empty.

    Raises RuntimeError if the result is larger than `largest` bytes.
    """
    content = path.read_bytes()
    if packing == ".gz":
        content = gzip.compress(content, 9, mtime=0)
    elif packing == ".zst":
        content = zstandard.ZstdCompressor(level=19).compress(content)
    if largest is not None and len(content) > largest:
        raise RuntimeError(f"{path} is {len(content):,} bytes, over {largest:,}")
    return content


def enter_new_network() -> None:
    """Move this process into a network namespace in which only loopback is up."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise PermissionError(ctypes.get_errno(), "a network namespace: record as root")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # getaddrinfo with AI_ADDRCONFIG, as in librdkafka, wants one address that is not 127.0.0.1.
    subprocess.run(["ip", "address", "add", "192.0.2.1/32", "dev", "lo"], check=True)


def end(process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    """End one process: with a signal, then by killing it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def wait_for(holds: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait until `holds` returns true. Raises TimeoutError after `seconds`."""
    last = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > last:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.05)

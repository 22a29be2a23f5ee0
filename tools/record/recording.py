"""A recording: a separate network, a capture tool, the clients' logs, and the files written.

    recording = Recording("aiokafka-tansu", "description", Tool("tcpdump", "lo"))
    with Tansu(...) as broker, recording.capture(), recording.python("aiokafka"):
        ...run clients...
    recording.keep(broker.software, "aiokafka 0.14.0")

Each scenario runs in its own process, because the process enters a network namespace and stays
there. `keep` writes the capture, compressed as `Tool.packing` says; the logs, each as
`NAME.KIND.log.zst`; the truth derived from them; and the row in the ledger. A recording with
dropped packets, or larger than `LARGEST`, is not written.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.record import clients, ledger, truth
from tools.record.kafka.recording import end, enter_new_network, pack, wait_for
from tools.record.ledger import CAPTURES

LARGEST = 300_000
"""Bytes of a capture as committed."""
SNAPLEN = "262144"
"""Larger than any frame: frames on loopback have up to 65,549 bytes."""
CAPTURED = re.compile(r"(\d+) packets captured|Packets captured: (\d+)")
DROPPED = re.compile(r"(\d+) packets? dropped by kernel|Packets received/dropped on .*: \d+/(\d+)")


@dataclass(frozen=True, slots=True)
class Tool:
    """The capture program, its interface, and the format of its file."""

    program: str = "tcpdump"
    """tcpdump writes pcap, dumpcap pcapng."""
    interface: str = "lo"
    nanoseconds: bool = True
    link: str = "EN10MB"
    """Data link type, by its name in libpcap."""
    packing: str = ""
    """Empty, ``.gz`` or ``.zst``."""

    @property
    def suffix(self) -> str:
        """Suffix of the raw file."""
        return ".pcapng" if self.program == "dumpcap" else ".pcap"

    @property
    def link_and_format(self) -> str:
        """Interface, link type and format, for the ledger."""
        unit = "ns" if self.nanoseconds or self.program == "dumpcap" else "µs"
        return f"{self.interface}, {self.link}, {self.suffix[1:]} in {unit}"

    def command(self, path: Path, select: str) -> list[str]:
        """The command that captures to `path` until it gets a signal."""
        command = [self.program, "-i", self.interface, "-y", self.link, "-s", SNAPLEN]
        if self.program == "dumpcap":
            return [*command, "-f", select, "-B", "32", "-w", str(path)]
        precision = "nano" if self.nanoseconds else "micro"
        live = ["--immediate-mode", "-U", "-n", f"--time-stamp-precision={precision}"]
        return [*command, *live, "-B", "32768", "-w", str(path), select]

    @contextmanager
    def capturing(self, path: Path, log: Path, select: str = "tcp") -> Iterator[None]:
        """Capture to `path` while the block runs. `log`: gets the output of the program."""
        with log.open("wb") as output:
            command = self.command(path, select)
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            ready = ("listening on", "File: ")
            wait_for(lambda: any(word in log.read_text() for word in ready), "it captures", 10)
            yield
            time.sleep(0.5)  # the last FINs
        finally:
            end(process)


class Recording:
    """A recording. Creating one moves this process into a new network namespace."""

    def __init__(self, name: str, about: str, tool: Tool) -> None:
        if missing := [name for name in (tool.program, "ip") if shutil.which(name) is None]:
            raise RuntimeError(f"install {' and '.join(missing)}")
        self.name, self.about, self.tool = name, about, tool
        self.work = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self.raw = self.work / f"capture{tool.suffix}"
        enter_new_network()
        subprocess.run(["ip", "address", "add", "2001:db8::1/128", "dev", "lo"], check=True)

    def capture(self) -> AbstractContextManager[None]:
        """Capture while the block runs."""
        return self.tool.capturing(self.raw, self.work / "tool.txt")

    def librdkafka(self) -> AbstractContextManager[None]:
        """Write the log of librdkafka to a file while the block runs."""
        return clients.standard_error_to(self._log("librdkafka"))

    def python(self, kind: str, *loggers: str) -> AbstractContextManager[None]:
        """Write the messages of a Python client's `loggers` to a file while the block runs."""
        return clients.logging_to(self._log(kind), *loggers)

    def _log(self, kind: str) -> Path:
        return self.work / f"{self.name}.{kind}.log"

    def keep(self, broker: str, *software: str) -> None:
        """Write all files. Raises RuntimeError if packets were dropped or the file is too large."""
        packets = captured(self.work / "tool.txt")
        target = CAPTURES / f"{self.name}{self.tool.suffix}{self.tool.packing}"
        packed = pack(self.raw, self.tool.packing, LARGEST)
        target.write_bytes(packed)
        logs = sorted(self.work.glob(f"{self.name}.*.log"))
        for log in logs:
            (CAPTURES / f"{log.name}.zst").write_bytes(pack(log, ".zst"))
        rows = truth.write(self.name)
        tool = f"{_version(self.tool.program)}, {time.strftime('%Y-%m-%d', time.gmtime())}"
        entry = ledger.Entry(
            target.name, self.about, broker, ", ".join(software), tool, self.tool.link_and_format,
            packets, rows,
        )  # fmt: skip
        ledger.enter(entry)
        print(entry.line(), f"{len(packed):,} bytes", sep="")
        shutil.rmtree(self.work)


def captured(log: Path) -> int:
    """The number of packets that a capture program has reported.

    Raises RuntimeError if there are none, or some were dropped.
    """
    output = log.read_text()
    count, dropped = _count(CAPTURED, output), _count(DROPPED, output)
    if dropped or not count:
        raise RuntimeError(f"{count} packets captured, {dropped} dropped:\n{output}")
    return count


def _count(pattern: re.Pattern[str], text: str) -> int:
    """The sum of the numbers that match `pattern`."""
    return sum(int(number) for groups in pattern.findall(text) for number in groups if number)


def _version(program: str) -> str:
    """Name and version of a program, from its own output."""
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"\d+\.\d+\.\d+", output.stdout)
    return f"{program} {version[0]}" if version else program

"""A soak: `python -m bench.soak`, a capture of gigabytes through a pipe, and memory as it goes by.

What goes through the pipe is bulk and chatter in turn, each time with other client ports and later
times, as the network of a busy broker would give them for hours. `kafka-dissector export -` makes
exchanges of it, in Parquet. Memory is what the system says is resident, twice a second; it must not
grow with what was read. In the end all exchanges must be there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bench.report import MB, table

PROGRAM = Path(sys.executable).parent / "kafka-dissector"
CAPTURES = Path(__file__).parents[1] / "captures"
PERIOD = 0.5
"""Seconds."""
CLIENTS, PORTS = 10_000, 35_000
"""First port of clients, and how many there are; no broker of the recordings is among them."""
STEP = 61
"""Ports from one turn to the next; more than a turn has connections."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What the system says of a process."""

    read: int
    """Bytes that it has read."""
    resident: int
    """Bytes of memory."""


def generate(size: float, output: BinaryIO) -> int:
    """Write a pcap of `size` bytes, or a little more; how many exchanges there are in it."""
    import numpy as np

    from bench import inputs

    parts = [
        inputs.Input("soak-bulk", CAPTURES / "bulk-tansu.pcap.zst", 20, bytes=100_000_000),
        inputs.Input("soak-chatter", CAPTURES / "chatter-mock.pcap.zst", 50, messages=100_000),
    ]
    made = []
    for part in parts:
        content = inputs.ready(part)
        data = np.fromfile(part.path, np.uint8)[len(inputs.HEADER) :]
        made.append((content, data, np.array(_records(data.tobytes()), np.int64)))
    output.write(inputs.HEADER)
    written = exchanges = turn = now = 0
    while written < size:
        content, whole, at = made[turn % len(made)]
        data = whole.copy()
        seconds = whole[at[:, None] + np.arange(4)].view("<u4")[:, 0].astype(np.int64)
        now = now or int(seconds[0])
        later = (seconds - seconds[0] + now).astype("<u4")
        data[at[:, None] + np.arange(4)] = later[:, None].view(np.uint8)
        for place in (at + inputs.IP + 20, at + inputs.IP + 22):  # ports of sender and receiver
            port = whole[place].astype(np.int64) << 8 | whole[place + 1]
            client = port >= inputs.FIRST_PORT
            port[client] = CLIENTS + (port[client] - inputs.FIRST_PORT + STEP * turn) % PORTS
            data[place], data[place + 1] = port >> 8, port & 0xFF
        output.write(data.data)
        written += len(data)
        exchanges += content.messages // 2
        now += int(content.seconds) + 2
        turn += 1
    return exchanges


def _records(data: bytes) -> list[int]:
    """Where each record of a pcap begins."""
    found, at = [], 0
    while at < len(data):
        found.append(at)
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    return found


def soak(size: float, memory: int, target: Path) -> tuple[list[Moment], float, int]:
    """Run both ends of the pipe: memory as it went, seconds of processor, exchanges expected."""
    begin = [sys.executable, "-m", "bench.soak", "--generate", f"{size}"]
    made = subprocess.Popen(begin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=False)
    command = [PROGRAM, "export", "-", "--memory", f"{memory}", "--format", "parquet"]
    process = subprocess.Popen([*command, "-o", target, "--overwrite"], stdin=made.stdout)
    assert made.stdout
    assert made.stderr
    made.stdout.close()
    moments = []
    ticks = 0
    while process.poll() is None:
        here = Path(f"/proc/{process.pid}")
        try:
            read = int((here / "io").read_text().split()[1])
            resident = int((here / "statm").read_text().split()[1]) * 4096
            ticks = sum(map(int, (here / "stat").read_text().rpartition(")")[2].split()[11:13]))
        except (OSError, IndexError):
            break  # it has just ended
        moments.append(Moment(read, resident))
        time.sleep(PERIOD)
    if process.wait():
        raise SystemExit(f"kafka-dissector ended with {process.returncode}")
    expected = int(made.stderr.read().split()[-1])
    made.wait()
    return moments, ticks / 100, expected


def told(moments: list[Moment], size: float, parts: int = 5) -> str:
    """Peak memory by how much was read."""
    rows = []
    for part in range(parts):
        low, high = size * part / parts, size * (part + 1) / parts
        within = [each.resident for each in moments if low <= each.read < high]
        if within:
            rows.append([f"{high / 1e9:.1f}", f"{max(within) / MB:.0f}"])
    return table(["GB read", "MB of memory, at most"], rows)


def main() -> None:
    """Soak, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak")
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--memory", type=int, default=512, metavar="MB", help="for the program")
    parser.add_argument("--generate", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.generate:
        print(generate(given.generate, sys.stdout.buffer), file=sys.stderr)
        return
    size = given.gigabytes * 1e9
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "exchanges.parquet"
        moments, seconds, expected = soak(size, given.memory, target)
        from pyarrow import parquet

        found = parquet.read_metadata(target).num_rows
    print(told(moments, size))
    print(f"\n{found:,} exchanges, {expected:,} and those of heads and tails expected;", end=" ")
    print(f"{seconds:.0f} s of processor time")
    if found < expected:
        raise SystemExit("exchanges are missing")


if __name__ == "__main__":
    main()

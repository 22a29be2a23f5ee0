"""A soak test: `python -m bench.soak` sends gigabytes through a pipe and samples the memory.

The pipe carries bulk and chatter in turn, each time with new client ports and later times, like the
traffic of a busy broker over hours. `kafka-dissector export -` writes its exchanges to Parquet. The
resident memory is sampled twice per second, and must not grow with the bytes read. In the end, no
exchange may be missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

from bench.measure import processor_time
from bench.pcap import HEADER, records
from bench.peers import PROGRAM
from bench.report import MB, table
from bench.suite import RECORDINGS

PERIOD = 0.5
"""Seconds."""
PARTS = 5
"""Rows of the table."""
CLIENTS, PORTS = 10_000, 35_000
"""First client port, and number of client ports; no broker uses one of them."""
STEP = 61
"""Step of client ports between turns; larger than the connections of a turn."""


Sample = tuple[int, int]
"""Bytes read so far, and bytes of resident memory."""


def generate(size: float, output: BinaryIO) -> int:
    """Write a pcap of at least `size` bytes; returns its number of exchanges."""
    import numpy as np

    from bench import inputs

    parts = [
        inputs.Input("soak-bulk", RECORDINGS["bulk"], 20, bytes=100_000_000),
        inputs.Input("soak-chatter", RECORDINGS["chatter"], 50, messages=100_000),
    ]
    source = []
    for part in parts:
        content = inputs.ready(part)
        data = part.path.read_bytes()
        at = np.array([at for at, _ in records(data)], np.int64) - len(HEADER)
        source.append((content, np.frombuffer(data, np.uint8)[len(HEADER) :], at))
    output.write(HEADER)
    written = exchanges = turn = now = 0
    while written < size:
        content, whole, at = source[turn % len(source)]
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


def soak(size: float, memory: int, target: Path) -> tuple[list[Sample], float, int]:
    """Run both ends of the pipe; returns samples, CPU seconds, and the expected exchanges."""
    generator = [sys.executable, "-m", "bench.soak", "--generate", f"{size}"]
    source = subprocess.Popen(generator, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    command = [PROGRAM, "export", "-", "--memory", f"{memory}", "--format", "parquet"]
    process = subprocess.Popen([*command, "-o", target, "--overwrite"], stdin=source.stdout)
    assert source.stdout
    assert source.stderr
    source.stdout.close()
    samples = []
    seconds = 0.0
    while process.poll() is None:
        proc = Path(f"/proc/{process.pid}")
        try:
            read = int((proc / "io").read_text().split()[1])
            resident = int((proc / "statm").read_text().split()[1]) * 4096
            seconds = processor_time(process.pid)
        except (OSError, IndexError):
            break  # the process has ended
        samples.append((read, resident))
        time.sleep(PERIOD)
    if process.wait():
        raise SystemExit(f"kafka-dissector ended with {process.returncode}")
    expected = int(source.stderr.read().split()[-1])
    source.wait()
    return samples, seconds, expected


def memory_table(samples: list[Sample], size: float) -> str:
    """Peak memory by bytes read."""
    rows = []
    for part in range(PARTS):
        low, high = size * part / PARTS, size * (part + 1) / PARTS
        within = [resident for read, resident in samples if low <= read < high]
        if within:
            rows.append([f"{high / 1e9:.1f}", f"{max(within) / MB:.0f}"])
    return table(["GB read", "peak MB of memory"], rows)


def main() -> None:
    """Run the soak test and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak")
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--memory", type=int, default=512, metavar="MB", help="for the program")
    parser.add_argument("--generate", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.generate:
        print(generate(options.generate, sys.stdout.buffer), file=sys.stderr)
        return
    size = options.gigabytes * 1e9
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "exchanges.parquet"
        samples, seconds, expected = soak(size, options.memory, target)
        from pyarrow import parquet

        actual = parquet.read_metadata(target).num_rows
    print(memory_table(samples, size))
    print(f"\n{actual:,} exchanges, at least {expected:,} expected;", end=" ")
    print(f"{seconds:.0f} s of CPU time")
    if actual < expected:
        raise SystemExit("exchanges are missing")


if __name__ == "__main__":
    main()

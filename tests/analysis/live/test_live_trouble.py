"""What goes wrong while `sniff` runs: each time a clear sentence, and what was captured stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq
import pytest

from analysis.live.outlet import QUEUE, Outlet
from dissector.capture import open_capture
from tests.analysis.live.capturing import needs_right

ROOT = Path(__file__).parents[3]
CAPTURES = ROOT / "captures"
PLAIN = CAPTURES / "librdkafka-mock-produce.pcap"
SNIFF = [
    sys.executable, "-c",
    "import sys; from analysis.cli import main; sys.exit(main(['sniff', *sys.argv[1:]]))",
]  # fmt: skip


def run(
    *arguments: str, before: Sequence[str] = (), stdin: Path | None = None
) -> subprocess.CompletedProcess[str]:
    with (stdin or Path(os.devnull)).open("rb") as packets:
        return subprocess.run(
            [*before, *SNIFF, *arguments], stdin=packets, capture_output=True, check=False,
            timeout=60, cwd=ROOT, text=True,
        )  # fmt: skip


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of standard error of what failed."""
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    return line


@contextmanager
def sniffing(*arguments: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """A sniffer that has begun; ended, whatever happens."""
    process = subprocess.Popen(
        [*before, *SNIFF, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    watchdog = threading.Timer(40, process.kill)  # then no line comes any more
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()


def of_packets(capture: Path) -> list[object]:
    """What of a capture's packets cannot be read."""
    problems = open_capture([capture]).tables(["problems"])["problems"].to_pylist()
    return [row for row in problems if row["stage"] == "packets"]


def line_with(stream: IO[bytes] | None, word: str) -> str:
    """The next line that has this in it."""
    assert stream
    for line in stream:
        if word in line.decode():
            return line.decode()
    raise AssertionError(f"no line has {word!r}")


@needs_right
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-i", "eth7"], "there is no interface 'eth7'; there are lo, any"),
        (["-i", "lo", "--filter", "prot 9092"], "cannot be understood: can't parse filter"),
        (["-i", "lo", "--where", "latency > 3"], 'column "latency" not found'),
        (["-i", "lo", "--write", "/nowhere/a.pcapng"], "/nowhere/a.pcapng: cannot be written to"),
        (["-i", "lo", "--export", "/proc/tables"], "/proc/tables: cannot be written to"),
    ],
)
def test_what_cannot_begin_is_said_in_a_sentence(arguments: list[str], says: str) -> None:
    assert says in sentence(run(*arguments, before=["unshare", "--net"]))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a right to give up")
def test_without_the_right_it_says_so() -> None:
    said = sentence(run("-i", "lo", before=["setpriv", "--bounding-set", "-net_raw"]))
    assert "needs root or the capability CAP_NET_RAW" in said


def test_what_is_no_capture() -> None:
    assert sentence(run("-", stdin=ROOT / "README.md")) == (
        "Error: standard input is not a pcap or pcapng file; "
        "`editcap -F pcap` converts other formats"
    )
    assert sentence(run("-")) == "Error: standard input is empty"


@needs_right
def test_an_interface_that_goes_and_comes_back() -> None:
    holder = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]

    def ip(line: str) -> None:
        subprocess.run([*inside, "ip", *line.split()], check=True)

    def send() -> None:
        line = [sys.executable, "-m", "bench.live", "--send", "kafka0", str(PLAIN), "2000"]
        subprocess.run([*inside, *line], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)

    def pair() -> None:
        ip("link add kafka0 mtu 65535 type veth peer name kafka1 mtu 65535")
        ip("link set kafka0 up")
        ip("link set kafka1 up")

    try:
        time.sleep(0.3)  # until it has left
        pair()
        with sniffing("-i", "kafka1", before=inside) as process:
            line_with(process.stderr, "capturing from kafka1")
            send()
            line_with(process.stdout, "Produce")
            ip("link set kafka1 down")
            assert line_with(process.stderr, "down") == "kafka1: is down; it is waited for\n"
            ip("link set kafka1 up")
            assert line_with(process.stderr, "up") == "kafka1: is up again\n"
            ip("link delete kafka1")
            line_with(process.stderr, "is down")
            pair()
            line_with(process.stderr, "is up again")
            process.send_signal(signal.SIGINT)
            summary, said = process.communicate(timeout=30)
        assert process.returncode == 0
        assert said == b""
        expected = open_capture([PLAIN], ports=()).tables(["exchanges"])["exchanges"]
        assert f"{len(expected)} exchanges" in summary.decode()
    finally:
        holder.kill()
        holder.wait()


@pytest.mark.parametrize("rolls", [[], ["--rotate-size", "8k"]])
def test_a_full_disk_leaves_what_can_be_read(tmp_path: Path, rolls: list[str]) -> None:
    """No file may be larger than a limit (RLIMIT_FSIZE): to whoever writes, a disk that is full."""
    path = tmp_path / "kept.pcapng"
    limit = 6_000 if rolls else 20_000
    done = run(
        "-", "--write", str(path), *rolls, stdin=PLAIN, before=["prlimit", f"--fsize={limit}"]
    )
    assert done.returncode == 1
    assert "which can be read, no more are written" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Produce" in done.stdout  # the session went on
    (kept,) = tmp_path.iterdir()
    assert 0 < kept.stat().st_size <= limit
    assert of_packets(kept) == []
    capture = open_capture([kept])
    capture.tables([])
    assert f"after {capture.packets} packet" in done.stderr


def test_a_full_disk_leaves_no_table_that_cannot_be_read(tmp_path: Path) -> None:
    done = run(
        "-", "--export", str(tmp_path), stdin=PLAIN, before=["prlimit", "--fsize=1000"]
    )  # fmt: skip
    assert done.returncode == 1
    assert "no more tables are written" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.partial"))
    for file in tmp_path.rglob("*.parquet"):
        pq.read_table(file)


def test_a_reader_who_has_gone_ends_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept.pcapng"
    with sniffing("-", "--write", str(kept)) as process:
        assert process.stdin
        assert process.stdout
        data = PLAIN.read_bytes()
        process.stdin.write(data[:9000])
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        try:
            for start in range(9000, len(data), 3000):
                process.stdin.write(data[start : start + 3000])
                process.stdin.flush()
                time.sleep(0.15)
            process.stdin.close()
        except BrokenPipeError:
            pass
        assert process.wait(30) == 141
    assert of_packets(kept) == []


class Slow:
    """A stream whose reader does not read until told to."""

    def __init__(self) -> None:
        self.reads = threading.Event()
        self.begun = threading.Event()
        self.text = b""

    def write(self, text: bytes) -> None:
        self.begun.set()
        self.reads.wait(30)
        self.text += text

    def flush(self) -> None:
        pass


def test_a_slow_reader_loses_lines_and_is_told_how_many() -> None:
    stream, left_out = Slow(), []
    outlet = Outlet(stream, left_out.append)  # type: ignore[arg-type]
    outlet.put(b"0\n")
    stream.begun.wait(30)
    for number in range(1, QUEUE + 51):
        outlet.put(b"%d\n" % number)
    stream.reads.set()
    while stream.text.count(b"\n") <= QUEUE:
        time.sleep(0.01)
    outlet.put(b"last\n")
    outlet.close()
    assert left_out == [50]
    assert stream.text == b"".join(b"%d\n" % n for n in range(QUEUE + 1)) + b"last\n"


def test_sigterm_ends_it_as_the_end_of_a_file_would() -> None:
    with sniffing("-") as process:
        assert process.stdin
        process.stdin.write(PLAIN.read_bytes())
        process.stdin.flush()
        line_with(process.stdout, "Produce")
        process.send_signal(signal.SIGTERM)
        assert "exchanges" in line_with(process.stdout, "connections")
        assert process.wait(30) == 0


def test_what_has_no_answer_is_given_out_while_it_runs() -> None:
    expected = open_capture([PLAIN], ports=()).tables(["exchanges"])["exchanges"].to_pylist()
    cut = max(row["request_packet"] for row in expected if row["status"] == "answered")
    with sniffing("-", "--unanswered-after", "2s") as process:
        assert process.stdin
        process.stdin.write(first_packets(PLAIN.read_bytes(), cut))
        process.stdin.flush()
        # The pipe stays open, and nothing more comes.
        assert "no answer" in line_with(process.stdout, "no answer")


def first_packets(data: bytes, count: int) -> bytes:
    """A pcap with so many packets of another."""
    at = 24
    for _ in range(count):
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    return data[:at]


@needs_right
def test_with_sudo_it_becomes_the_caller() -> None:
    caller = ["env", "SUDO_UID=65534", "SUDO_GID=65534", "SUDO_USER=nobody"]
    with sniffing("-i", "lo", before=["unshare", "--net", *caller]) as process:
        line_with(process.stderr, "capturing")
        status = Path(f"/proc/{process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        assert fields["Uid"].split() == ["65534"] * 4
        assert fields["Gid"].split() == ["65534"] * 4
        assert int(fields["CapEff"], 16) == 0
        assert fields["Groups"].split() == ["65534"]
        process.send_signal(signal.SIGINT)
        line_with(process.stdout, "packets")
        assert process.wait(30) == 0


def test_the_summary_names_commands_for_packets_that_are_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept packets.pcapng"
    done = run("-", "--view", "none", "--write", str(kept), stdin=PLAIN)
    assert f"more: kafka-dissector latency '{kept}'\n" in done.stdout
    assert "--write FILE" not in done.stdout
    rolled = tmp_path / "rolled.pcapng"
    done = run("-", "--view", "none", "--write", str(rolled), "--rotate-size", "1M", stdin=PLAIN)
    assert f"more: kafka-dissector latency '{tmp_path}/rolled-*.pcapng'\n" in done.stdout
    done = run(str(PLAIN), "--view", "none")
    assert f"more: kafka-dissector latency {PLAIN}\n" in done.stdout


def test_the_summary_names_no_command_for_packets_that_are_gone() -> None:
    done = run("-", "--view", "none", stdin=PLAIN)
    assert done.returncode == 0
    assert "more:" not in done.stdout
    assert "CAPTURE" not in done.stdout
    assert done.stdout.endswith("To look further, keep the packets: --write FILE\n")


@pytest.mark.parametrize("source", [str(PLAIN), "-"])
def test_a_file_has_no_rates_of_the_last_seconds(source: str) -> None:
    done = run(source, "--view", "screen", stdin=PLAIN)
    assert done.returncode == 2
    assert "kafka-dissector summary" in " ".join(done.stderr.split())

"""Errors while `sniff` runs: each gives one clear message, and captured data is kept."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq
import pytest

from analysis.live.nonblocking_writer import QUEUE, NonblockingWriter
from dissector.capture import open_capture
from dissector.packets.paths import matches
from dissector.tables import TABLES
from tests.analysis.commands import Ran
from tests.analysis.live.capturing import needs_privilege
from tests.analysis.live.sniffing import ROOT, SNIFF, Sniff, limited, send, sniffing, wait_for
from tests.dissector.streams.dialogue import request, response, spoken
from tests.robustness.robustness_damage import recording

CAPTURES = ROOT / "captures"
PLAIN = CAPTURES / "librdkafka-mock-produce.pcap"


def run(
    *arguments: str, before: Sequence[str], stdin: Path | None = None
) -> subprocess.CompletedProcess[str]:
    with (stdin or Path(os.devnull)).open("rb") as packets:
        return subprocess.run(
            [*before, *SNIFF, *arguments], stdin=packets, capture_output=True, check=False,
            timeout=180, cwd=ROOT, text=True,
        )  # fmt: skip


def error_line(result: subprocess.CompletedProcess[str]) -> str:
    """The single line on standard error of a failed run."""
    assert result.returncode == 1, result.stderr
    (line,) = result.stderr.splitlines()
    return line


def packet_problems(capture: Path) -> list[object]:
    """Problems of the packet stage in a capture."""
    problems = open_capture([capture]).tables(["problems"])["problems"].to_pylist()
    return [row for row in problems if row["stage"] == "packets"]


def line_with(stream: IO[bytes] | None, word: str) -> str:
    """The next line that contains `word`."""
    assert stream
    for line in stream:
        if word in line.decode():
            return line.decode()
    raise AssertionError(f"no line contains {word!r}")


@needs_privilege
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "eth7"], "there is no interface 'eth7'; choose from lo, any"),
        (["-i", "lo", "--filter", "prot 1"], "filter 'prot 1' is invalid: can't parse filter"),
        (["-i", "lo", "--port", "1", "--filter", "tcp) or (ip"], "filter 'tcp) or (ip' is invalid"),
        (["-i", "lo", "--write", "/proc/nowhere/a.pcapng"], "cannot write /proc/nowhere/a.pcapng"),
        (["-i", "lo", "--export", "/proc/tables"], "cannot write /proc/tables"),
    ],
)
def test_a_failed_start_prints_one_message(arguments: list[str], message: str) -> None:
    assert message in error_line(run(*arguments, before=["unshare", "--net"]))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to drop")
def test_missing_privileges_are_reported() -> None:
    message = error_line(run("-i", "lo", before=["setpriv", "--bounding-set", "-net_raw"]))
    assert "needs root or the capability CAP_NET_RAW" in message


def test_input_that_is_not_a_capture(sniff: Sniff) -> None:
    assert error_line(sniff("-", stdin=ROOT / "README.md")) == (
        "Error: standard input is text, not a pcap or pcapng file; `tcpdump -w` writes a capture"
    )
    assert error_line(sniff("-")) == "Error: standard input is empty"


@needs_privilege
def test_an_interface_that_disappears_and_returns() -> None:
    holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    network = Path(f"/proc/{holder.pid}/ns/net")
    inside = ["nsenter", f"--net={network}"]

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
        wait_for(lambda: network.readlink() != Path("/proc/self/ns/net").readlink())
        pair()
        with sniffing("-i", "kafka1", before=inside) as process:
            line_with(process.stderr, "capturing from kafka1")
            send()
            line_with(process.stdout, "Produce")
            ip("link set kafka1 down")
            assert line_with(process.stderr, "down") == "kafka1: is down; waiting for it\n"
            ip("link set kafka1 up")
            assert line_with(process.stderr, "up") == "kafka1: is up again\n"
            ip("link delete kafka1")
            line_with(process.stderr, "is down")
            pair()
            line_with(process.stderr, "is up again")
            process.send_signal(signal.SIGINT)
            summary, errors = process.communicate(timeout=180)
        assert process.returncode == 0
        assert errors == b""
        expected = open_capture([PLAIN], ports=()).tables(["exchanges"])["exchanges"]
        assert f"{len(expected)} exchanges" in summary.decode()
    finally:
        holder.kill()
        holder.wait()


@pytest.mark.parametrize("limits", [[], ["--rotate-size", "8k"]])
def test_a_full_disk_leaves_readable_packets(tmp_path: Path, limits: list[str]) -> None:
    path = tmp_path / "kept.pcapng"
    limit = 6_000 if limits else 20_000
    result = run("-", "--write", str(path), *limits, stdin=PLAIN, before=limited(limit))
    assert result.returncode == 1
    assert "which can be read" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Produce" in result.stdout  # the session continued
    (kept,) = tmp_path.iterdir()
    assert 0 < kept.stat().st_size <= limit
    assert packet_problems(kept) == []
    capture = open_capture([kept])
    capture.tables([])
    assert f"after {capture.packets} packet" in result.stderr


def test_a_full_disk_leaves_only_readable_tables(tmp_path: Path) -> None:
    result = run("-", "--export", str(tmp_path), stdin=PLAIN, before=limited(1000))
    assert result.returncode == 1
    assert "stopped writing tables" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.rglob("*.partial"))
    for file in tmp_path.rglob("*.parquet"):
        pq.read_table(file)


def test_a_closed_pipe_ends_the_session(tmp_path: Path) -> None:
    kept = tmp_path / "kept.pcapng"
    with sniffing("-", "--write", str(kept)) as process:
        assert process.stdin
        assert process.stdout
        data = PLAIN.read_bytes()
        send(process, data[:9000])
        process.stdout.readline()
        process.stdout.close()
        try:
            for start in range(9000, len(data), 3000):
                send(process, data[start : start + 3000])
                time.sleep(0.15)
            process.stdin.close()
        except BrokenPipeError:
            pass
        assert process.wait(180) == 141
    assert packet_problems(kept) == []


class SlowStream:
    """A stream whose reader waits for an event, and which takes three bytes at a time."""

    def __init__(self) -> None:
        self.reads = threading.Event()
        self.started = threading.Event()
        self.text = b""

    def write(self, text: bytes) -> int:
        self.started.set()
        self.reads.wait(180)
        self.text += text[:3]
        return len(text[:3])


def test_lines_for_a_slow_reader_are_dropped_and_counted() -> None:
    stream, dropped = SlowStream(), []
    writer = NonblockingWriter(stream, dropped.append)  # type: ignore[arg-type]
    writer.put(b"0\n")
    stream.started.wait(180)
    for number in range(1, QUEUE + 51):
        writer.put(b"%d\n" % number)
    stream.reads.set()
    wait_for(lambda: stream.text.count(b"\n") > QUEUE)
    writer.put(b"last\n")
    writer.close()
    assert dropped == [50]
    assert stream.text == b"".join(b"%d\n" % n for n in range(QUEUE + 1)) + b"last\n"


def test_unanswered_requests_are_shown_while_it_runs() -> None:
    expected = open_capture([PLAIN], ports=()).tables(["exchanges"])["exchanges"].to_pylist()
    cut = max(row["request_packet"] for row in expected if row["status"] == "answered")
    whole = recording(PLAIN)
    with sniffing("-", "--unanswered-after", "1s") as process:
        send(process, whole.data[: whole.end[cut - 1]])
        # The pipe stays open without further data.
        assert "no response" in line_with(process.stdout, "no response")


CALLER = ("env", "SUDO_UID=65534", "SUDO_GID=65534", "SUDO_USER=nobody")
"""Words before a command, which it then takes as called by sudo."""


@needs_privilege
@pytest.mark.parametrize("option", ["--export", "--write"])
def test_under_sudo_an_error_names_the_caller(tmp_path: Path, option: str) -> None:
    tmp_path.chmod(0o755)
    words = ["-", "--view", "none", option, str(tmp_path / "x")]
    with sniffing(*words, before=CALLER) as process:
        _, errors = process.communicate(PLAIN.read_bytes(), timeout=180)
    assert process.returncode == 1
    expected = "Permission denied for nobody: under sudo, the calling user writes files"
    assert errors.decode() == f"Error: cannot write {tmp_path / 'x'}: {expected}\n"


@needs_privilege
def test_under_sudo_it_switches_to_the_caller() -> None:
    with sniffing("-i", "lo", before=["unshare", "--net", *CALLER]) as process:
        line_with(process.stderr, "capturing")
        status = Path(f"/proc/{process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        assert fields["Uid"].split() == ["65534"] * 4
        assert fields["Gid"].split() == ["65534"] * 4
        assert int(fields["CapEff"], 16) == 0
        assert fields["Groups"].split() == ["65534"]
        process.send_signal(signal.SIGINT)
        line_with(process.stdout, "packets")
        assert process.wait(180) == 0


UNREADABLE = """
import os, sys
from importlib.machinery import PathFinder
from analysis.cli import main
from analysis.live import privileges

def drop():
    sys.meta_path[:] = [each for each in sys.meta_path if each is not PathFinder]
    sys.addaudithook(check)

def check(event, arguments):
    if event == "open" and str(arguments[0]).startswith((os.getcwd() + "/dissector", sys.prefix)):
        raise PermissionError(*arguments)

privileges.drop = drop
sys.exit(main())
"""
"""`sniff` with Python's modules in folders that only root may read, once it is not root anymore."""


@pytest.mark.parametrize(
    "capture", ["kafka-4-transactions.pcap.zst", "kafka-4-tls-secrets.pcapng.zst"]
)
def test_without_privileges_no_module_is_read(tmp_path: Path, capture: str, sniff: Sniff) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    words = [str(ROOT / "captures" / capture), "--table", "all", "--metrics", str(port), "--export"]
    command = [sys.executable, "-c", UNREADABLE, "sniff", *words, str(tmp_path / "unreadable")]
    unreadable = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    for done in (unreadable, sniff(*words, str(tmp_path / "all"))):
        assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    for name in TABLES:
        whole, rows = (pq.read_table(tmp_path / each / name) for each in ("all", "unreadable"))
        assert sorted(map(str, rows.to_pylist())) == sorted(map(str, whole.to_pylist())), name


def test_the_summary_recommends_commands_for_kept_packets(tmp_path: Path, sniff: Sniff) -> None:
    kept = tmp_path / "kept packets.pcapng"
    result = sniff("-", "--view", "none", "--write", str(kept), stdin=PLAIN)
    assert f"more: kafka-dissector latency '{kept}' --by api,api_version\n" in result.stdout
    assert "--write FILE" not in result.stdout
    rolled = tmp_path / "rolled [1].pcapng"
    result = sniff(
        "-", "--view", "none", "--write", str(rolled), "--rotate-size", "1M", stdin=PLAIN
    )
    pattern = f"{tmp_path}/rolled [[]1]-*.pcapng"
    assert f"more: kafka-dissector latency '{pattern}' --by api,api_version\n" in result.stdout
    assert len(matches(pattern)) == 1
    result = sniff(str(PLAIN), "--view", "none")
    assert f"more: kafka-dissector latency {PLAIN} --by api,api_version\n" in result.stdout


def test_without_packets_the_summary_recommends_no_command(sniff: Sniff) -> None:
    result = sniff("-", "--view", "none", stdin=PLAIN)
    assert result.returncode == 0
    assert "more:" not in result.stdout
    assert "CAPTURE" not in result.stdout
    assert result.stdout.endswith("To analyse the packets later, capture with --write FILE.\n")


def test_the_full_screen_rejects_a_file_at_standard_input(sniff: Sniff) -> None:
    result = sniff("-", "--view", "screen", stdin=PLAIN)
    assert result.returncode == 2
    assert "kafka-dissector summary" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no input: name either an interface (-i NAME) or a pipe (-)"),
        (["-", "-i", "lo"], "two inputs: name either an interface (-i NAME) or a pipe (-)"),
        (["tests"], "tests is a folder: sniff reads a pipe or a file; use kafka-dissector summary"),
        (["-", "--metrics", "99999"], "--metrics 99999: choose a port from 1 to 65535"),
        (["-", "--metrics", "0"], "--metrics 0: choose a port from 1 to 65535"),
        (["-", "--metrics", "[::1]:0"], "--metrics [::1]:0: choose a port from 1 to 65535"),
        (["-", "--table", "all"], "--table needs --export DIR"),
        (["-", "--schema-registry", "tests"], "--schema-registry needs --view screen"),
        ([str(PLAIN), "--view", "screen"], "kafka-dissector summary"),
        ([str(PLAIN), "--where", "latency > 3"], "exchanges has no column latency"),
        (["-", "--metrics", "x"], "expected [ADDRESS:]PORT, for example 9464, 127.0.0.1:9464"),
        (["-", "--metrics", "::1"], "--metrics ::1: expected [ADDRESS:]PORT"),
        (["-", "--unanswered-after", "36501d"], "is too large: the largest time is 36500d"),
        (["-i", "lo", "--buffer", "1000001G"], "is too large: the largest size is 1000000G"),
    ],
)
def test_wrong_options_are_usage_errors(arguments: list[str], message: str, ran: Ran) -> None:
    assert message in " ".join(ran("sniff", *arguments, status=2).err.split())


@pytest.mark.parametrize("is_compressed", [False, True])
def test_damage_of_the_input_is_reported_without_a_summary(
    tmp_path: Path, is_compressed: bool, sniff: Sniff
) -> None:
    path, data = tmp_path / "damaged", bytearray(PLAIN.read_bytes())
    if is_compressed:
        data = bytearray(gzip.compress(data))
    data[len(data) // 2 : len(data) // 2 + 300] = b"\xff" * 300
    path.write_bytes(data)
    result = sniff("-", "--view", "jsonl", stdin=path)
    damage = "the gzip stream is damaged" if is_compressed else "no packet begins at byte"
    assert damage in result.stderr


def test_a_line_with_an_error_code_without_a_name(tmp_path: Path, sniff: Sniff) -> None:
    """Of a later release."""
    spoken(request(18, 0, 1), response(1, b"\x03\xe7" + bytes(4))).written(tmp_path / "a.pcap")
    assert "  1.000 ms  error 999\n" in sniff(str(tmp_path / "a.pcap")).stdout


def test_an_address_that_is_not_one_is_an_error(sniff: Sniff) -> None:
    result = sniff(str(PLAIN), "--view", "none", "--metrics", "a..b:9464")
    assert result.returncode == 1
    assert result.stderr == (
        "Error: --metrics a..b:9464: cannot listen on this address: not an address\n"
    )


def test_times_of_a_filter_are_relative_to_the_first_packet_of_a_file(sniff: Sniff) -> None:
    lines = [sniff(str(PLAIN), "--view", "jsonl", "--since", time).stdout for time in ("0", "1h")]
    assert lines[0]
    assert not lines[1]

"""Cuts of recordings: their rows are those of the original, and Wireshark reads them.

`SLOW=1` cuts all recordings.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import zstandard

from analysis.cutting.driver import CutResult, cut
from analysis.cutting.packets import AWAITED
from dissector.capture import open_capture
from dissector.packets.formats.pcapng import SECRETS
from tests.captures.truth import CAPTURES
from tests.tshark import needs_tshark, tshark

RECORDINGS = sorted(
    path.name for path in CAPTURES.glob("*.pcap*") if not path.name.startswith("kafka-4-tls")
)
SAMPLE = (
    "librdkafka-mock-produce.pcap", "kafka-4-quotas.pcap.zst", "kafka-python-tansu.pcapng.gz",
    "librdkafka-mock-errors.pcap", "librdkafka-tansu.pcap.zst", "kafka-4-net-vxlan.pcap.zst",
    "kafka-4-cut-snaplen.pcap.zst", "bulk-tansu.pcap.zst", "kafka-4-net-disorder.pcap.zst",
)  # fmt: skip
"""Link types, pcapng, IPv6, tunnels, truncated packets, loss, messages of many segments, segments
out of order."""
CONDITIONS = {
    "api": lambda rows: pc.is_in(rows["api"], pa.array(["Produce", "Fetch"])),
    "slow": lambda rows: pc.greater(rows["latency_ms"], 20),
    "small": lambda rows: pc.is_in(rows["api"], pa.array(["Heartbeat", "Metadata"])),
    "errors": lambda rows: pc.greater(rows["error_count"], 0),
    "half": lambda rows: pa.array(chance(rows, 0.5)),
    "tenth": lambda rows: pa.array(chance(rows, 0.1)),
    "last": lambda rows: pa.array([index >= len(rows) * 0.9 for index in range(len(rows))]),
}
CONTEXT_DEPENDENT = ("capture", "connection_id", "request_packet", "response_packet", "in_flight")
"""Columns that depend on the packets around an exchange."""


def exchanges(path: Path, **options: object) -> pa.Table:
    return open_capture(path, **options).tables("exchanges")["exchanges"]


def chance(rows: pa.Table, share: float) -> list[bool]:
    """A random choice, the same in each run."""
    numbers = random.Random(f"{rows['request_time'][0]} {share}")
    return [numbers.random() < share for _ in range(len(rows))]


def chosen(rows: pa.Table, condition: str) -> pa.Table:
    return rows.filter(pc.fill_null(CONDITIONS[condition](rows), False))


def counted(rows: pa.Table) -> Counter[str]:
    names = [name for name in rows.schema.names if name not in CONTEXT_DEPENDENT]
    return Counter(map(str, rows.select(names).to_pylist()))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("recording", RECORDINGS if os.environ.get("SLOW") else SAMPLE)
def test_a_cut_has_the_rows_of_its_exchanges(
    tmp_path: Path, recording: str, condition: str
) -> None:
    rows = chosen(exchanges(CAPTURES / recording), condition)
    if not len(rows):
        pytest.skip("no exchange meets the condition")
    result = cut(CAPTURES / recording, rows, tmp_path / "cut.pcapng")
    written = exchanges(tmp_path / "cut.pcapng")
    missing, surplus = counted(rows) - counted(written), counted(written) - counted(rows)
    assert not missing
    assert not surplus
    assert result.unreadable == 0


def test_gaps_are_closed_if_messages_behind_them_are_not_found(tmp_path: Path) -> None:
    """A response that cannot be decoded is one of them."""
    recording = CAPTURES / "kafka-python-mock.pcap"
    rows = chosen(exchanges(recording), "api")
    result = cut(recording, rows, tmp_path / "cut.pcapng")
    assert (result.closed, result.unreadable) == (1, 0)
    assert counted(exchanges(tmp_path / "cut.pcapng")) == counted(rows)
    assert b"Sequence numbers of the connection of 127.0.0.1:" in (
        (tmp_path / "cut.pcapng").read_bytes()
    )


@pytest.mark.parametrize(
    ("recording", "condition"),
    [("kafka-4-errors.pcap.zst", "last"), ("kafka-4-cut-responses.pcap.zst", "half")],
    ids=["a malformed Produce without response", "a response without request"],
)
def test_a_comment_declares_connections_that_nothing_else_identifies(
    tmp_path: Path, recording: str, condition: str
) -> None:
    """It is all that is left of its connection. Only the comment shows that it is Kafka."""
    rows, path = chosen(exchanges(CAPTURES / recording), condition), tmp_path / "cut.pcapng"
    assert cut(CAPTURES / recording, rows, path).unreadable == 0
    for options in ({}, {"jobs": 2}):
        assert counted(exchanges(path, **options)) == counted(rows)
    path.write_bytes(path.read_bytes().replace(b"Kafka connection of", b"Other connection of"))
    assert (counted(rows) - counted(exchanges(path))).total() == 1


@needs_tshark
def test_a_message_that_waited_for_a_lost_segment_has_its_time(tmp_path: Path) -> None:
    """Produce 9 arrives before a segment that was sent before it. So it is readable late."""
    path = CAPTURES / "kafka-4-net-disorder.pcap.zst"
    is_ninth = (pc.field("correlation_id") == 9) & (pc.field("client_id") == "producer")
    rows = exchanges(path).filter(is_ninth)
    assert len(rows) == 1
    cut(path, rows, tmp_path / "cut.pcapng")
    written = open_capture(tmp_path / "cut.pcapng").tables(["exchanges", "connections"])
    assert counted(written["exchanges"]) == counted(rows)
    # The capture has the time at which the first packet of the request arrived, too.
    packets = tshark(tmp_path / "cut.pcapng", ["frame.comment", "frame.time_epoch", "tcp.len"])
    (packet,) = (fields for fields in packets if AWAITED in fields[0])
    assert packet[2] == "1"
    assert Decimal(packet[1]) * 10**9 == rows["request_time"].cast(pa.int64())[0].as_py()


@needs_tshark
@pytest.mark.parametrize("recording", SAMPLE[1:3])
def test_packets_are_those_of_the_original(tmp_path: Path, recording: str) -> None:
    """Whole packets, their times, and a comment for each message, as tshark reads them."""
    rows = chosen(exchanges(CAPTURES / recording), "api")
    result = cut(CAPTURES / recording, rows, tmp_path / "cut.pcapng")
    fields = (
        "frame.time_epoch", "frame.len", "frame.encap_type",
        "tcp.seq_raw", "tcp.ack_raw", "tcp.srcport", "tcp.payload",
    )  # fmt: skip
    original = Counter(map(tuple, tshark(CAPTURES / recording, fields)))
    written = tshark(tmp_path / "cut.pcapng", fields)
    assert len(written) == result.packets
    assert result.trimmed == 0
    assert not Counter(map(tuple, written)) - original
    comments = [text for (text,) in tshark(tmp_path / "cut.pcapng", ["frame.comment"]) if text]
    messages = 2 * len(rows) - rows["response_time"].null_count
    assert sum(text.count(" v") for text in comments) == messages
    requests = [text for text in comments if not text.startswith("response to")]
    assert len(requests) <= len(rows)


@needs_tshark
def test_comments_describe_the_exchanges(tmp_path: Path) -> None:
    """The throttled Produce requests of the recording of quotas."""
    path = CAPTURES / "kafka-4-quotas.pcap.zst"
    rows = exchanges(path).filter(pc.field("throttle_time_ms") > 2000)
    cut(path, rows, tmp_path / "cut.pcapng")
    comments = {text for (text,) in tshark(tmp_path / "cut.pcapng", ["frame.comment"]) if text}
    for row in rows.to_pylist():
        text = f"{row['api']} v{row['api_version']}"
        own = [each for each in comments if each.startswith(text)]
        assert any(f"throttled {row['throttle_time_ms']:,} ms" in each for each in own)
    assert any("THROTTLING_QUOTA_EXCEEDED" in text for text in comments)


@needs_tshark
def test_capinfos_reads_a_cut(tmp_path: Path) -> None:
    path = CAPTURES / "kafka-python-tansu.pcapng.gz"
    cut(path, exchanges(path), tmp_path / "cut.pcapng", title="a title")
    infos = []
    for file in (path, tmp_path / "cut.pcapng"):
        command = ["capinfos", "-M", str(file)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "error" not in printed.lower()
        infos.append(dict(map(str.strip, line.split("=", 1)) for line in printed.splitlines()
                          if "=" in line))  # fmt: skip
    for name in ("Name", "Encapsulation", "Capture length", "Time precision", "Operating system"):
        assert infos[0].get(name) == infos[1].get(name)


def test_all_exchanges_of_a_file_are_a_cut_of_it(tmp_path: Path) -> None:
    path = CAPTURES / "librdkafka-mock-transactions.pcapng"
    rows = exchanges(path)
    result = cut(path, rows, tmp_path / "cut.pcapng")
    assert result.unreadable == result.trimmed == 0
    assert counted(exchanges(tmp_path / "cut.pcapng")) == counted(rows)


@pytest.mark.parametrize("recording", ["kafka-4-tls.pcap.zst", "kafka-4-tls-secrets.pcapng.zst"])
def test_encrypted_exchanges_need_their_secrets(tmp_path: Path, recording: str) -> None:
    keylog = CAPTURES / "kafka-4-tls.keys.log" if "secrets" not in recording else None
    path, output = CAPTURES / recording, tmp_path / "cut.pcapng"
    rows = chosen(exchanges(path, keylog=keylog), "api")
    result = cut(path, rows, output, secrets=True, keylog=keylog)
    assert result.unreadable == 0
    assert counted(chosen(exchanges(output), "api")) == counted(rows)
    # A TLS 1.3 session has five secrets, a TLS 1.2 session has one.
    assert 0 < result.secrets < len(Path(CAPTURES / "kafka-4-tls.keys.log").read_text().split("\n"))
    without = cut(path, rows, output, overwrite=True, keylog=keylog)
    assert without.secrets == without.unreadable == 0
    assert not len(exchanges(output).filter(pc.field("api").is_valid()))


def test_secrets_of_a_java_agent_are_those_of_a_session_id(tmp_path: Path) -> None:
    """The line of a TLS 1.2 session has the session id of its ServerHello."""
    path, keylog, output = CAPTURES / "kafka-4-tls.pcap.zst", tmp_path / "a.log", tmp_path / "a"
    data = zstandard.ZstdDecompressor().stream_reader(path.open("rb")).read()
    hello = rb"\x16\x03.{3}%b.{3}\x03\x03(.{32})(?:\x20(.{32}))?"
    randoms = [groups[0].hex() for groups in re.findall(hello % b"\1", data, re.S)]
    sessions = [groups[1].hex() for groups in re.findall(hello % b"\2", data, re.S)]
    text = (CAPTURES / "kafka-4-tls.keys.log").read_text()
    for client_random, session in zip(randoms, sessions, strict=True):
        line = rf"CLIENT_RANDOM {client_random} (\S+)"
        text = re.sub(line, rf"RSA Session-ID:{session} Master-Key:\1", text)
    keylog.write_text(text)
    assert text.count("RSA Session-ID") == 12
    rows = exchanges(path, keylog=keylog).filter(pc.starts_with(pc.field("client_id"), "producer"))
    assert cut(path, rows, output, secrets=True, keylog=keylog).unreadable == 0
    assert counted(chosen(exchanges(output), "api")) == counted(chosen(rows, "api"))


def test_secrets_may_come_after_the_packets(tmp_path: Path) -> None:
    path, output = tmp_path / "a.pcapng", tmp_path / "b.pcapng"
    file = (CAPTURES / "kafka-4-tls-secrets.pcapng.zst").open("rb")
    data, blocks = zstandard.ZstdDecompressor().stream_reader(file).read(), []
    while data:
        size = int.from_bytes(data[4:8], "little")
        blocks.append(data[:size])
        data = data[size:]
    blocks.sort(key=lambda block: int.from_bytes(block[:4], "little") == SECRETS)
    path.write_bytes(b"".join(blocks))
    rows = exchanges(path)
    result = cut(path, rows, output, secrets=True)
    assert (result.secrets > 0, result.unreadable) == (True, 0)
    assert counted(chosen(exchanges(output), "api")) == counted(chosen(rows, "api"))


def test_a_context_of_any_length_has_all_packets(tmp_path: Path) -> None:
    path = CAPTURES / "kafka-4-quotas.pcap.zst"
    rows = exchanges(path).slice(0, 1)
    results = [cut(path, rows, tmp_path / f"{c}.pcapng", context=c) for c in (1e6, 1e308)]
    assert results[0].packets == results[1].packets


def test_context_adds_whole_packets_around_messages(tmp_path: Path) -> None:
    path, output = CAPTURES / "kafka-4-followed.pcap.zst", tmp_path / "cut.pcapng"
    rows = exchanges(path)
    poll = rows.filter(pc.field("request_packet") == 1735)
    assert len(poll) == 1
    alone = cut(path, poll, output)
    result: CutResult = cut(path, poll, output, context=1.0, overwrite=True)
    assert result.packets > alone.packets
    second = pa.scalar(10**9, pa.duration("ns"))
    near = rows.filter(
        (pc.field("connection_id") == poll["connection_id"][0])
        & (pc.field("request_time") >= pc.subtract(poll["request_time"][0], second))
        & (pc.field("response_end_time") <= pc.add(poll["response_end_time"][0], second))
    )
    assert len(near) > 1
    assert {*near["request_time"]} <= {*exchanges(output)["request_time"]}

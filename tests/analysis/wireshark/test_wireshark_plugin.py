"""The Wireshark plugin in tshark shows the same fields and values as this project's decoder."""

from __future__ import annotations

import random
import re
import shlex
import shutil
import struct
import textwrap
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.cli import main
from dissector import open_capture
from dissector.exchanges.exchange import Exchange
from dissector.exchanges.sasl import SASL_TOKEN
from dissector.protocol import registry
from dissector.protocol.notation import Direction
from dissector.protocol.structures import METADATA_TOPIC
from tests.analysis.wireshark.plugin_output import (
    HEADER,
    KEYS,
    Shown,
    expected,
    pdml,
    shown,
    tshark,
)
from tests.captures.recorded import CAPTURES, RECORDINGS, SMALLER
from tests.dissector.packets import packet_bytes
from tests.kafka_bytes import request, text
from tests.robustness.robustness_damage import recording

PARTS = [path for path in RECORDINGS if "-cut-" in path.name]
"""Captures of a part of the packets or bytes."""
WHOLE = [path for path in SMALLER if path not in PARTS]
OTHER = sorted((CAPTURES / "other").iterdir())
QUOTAS = CAPTURES / "kafka-4-quotas.pcap.zst"
PASSWORDS = (b"alice-secret", b"broker-secret", b"made-for-the-recording", b"plugin-secret")
TCP_HEADERS = 16 + 14 + 20 + 32
"""Bytes of a packet in a file before those of TCP: record header, Ethernet, IPv4, TCP."""

pytestmark = [
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wireshark") / "kafka.lua"
    assert main(["wireshark-plugin", "-o", str(path)]) == 0
    return path


def header_of(exchange: Exchange, direction: Direction) -> dict[str, str]:
    values = (
        int(direction is Direction.REQUEST), exchange.api_key, exchange.api_version,
        exchange.correlation_id, exchange.client_id,
    )  # fmt: skip
    header = zip(HEADER, values, strict=True)
    return {name: str(value) for name, value in header if value is not None}


def messages_of(capture: Path) -> Iterator[tuple[Exchange, Direction, tuple[int, int]]]:
    """The complete messages of a capture, as this project reads them."""
    keylog = KEYS if "tls" in capture.name else None
    for exchange in open_capture(capture, keylog=keylog).exchanges():
        ports = exchange.client_port, exchange.broker_port
        for direction, frame, size, between in (
            (Direction.REQUEST, exchange.request_frame, exchange.request_bytes, ports),
            (Direction.RESPONSE, exchange.response_frame, exchange.response_bytes, ports[::-1]),
        ):
            if frame is not None and len(frame) + 4 == size and exchange.api != SASL_TOKEN:
                yield exchange, direction, between


def by_id(messages: list[Shown]) -> dict[tuple[tuple[int, int], str], list[Shown]]:
    ordered = defaultdict(list)
    for each in messages:
        if "correlation_id" in each.header:
            ordered[each.ports, each.header["correlation_id"]].append(each)
    return ordered


def compare(exchange: Exchange, direction: Direction, message: Shown) -> None:
    assert message.header == header_of(exchange, direction)
    latency = message.links.get("latency")
    if latency and exchange.latency_ms is not None:
        assert float(latency) * 1000 == pytest.approx(exchange.latency_ms, abs=1e-3)
    explanation = exchange.explain(direction)
    if explanation and exchange.api_key in registry.apis():
        assert message.fields == expected(exchange.api_key, explanation), exchange


@pytest.mark.sampled(16)
@pytest.mark.slow
@pytest.mark.parametrize("capture", WHOLE, ids=lambda path: path.name)
def test_all_fields_equal_those_of_the_decoder(script: Path, capture: Path) -> None:
    messages = by_id(shown(pdml(script, capture, "-o", "tcp.reassemble_out_of_order:TRUE")))
    for exchange, direction, ports in messages_of(capture):
        queue = messages[ports, str(exchange.correlation_id)]
        assert queue, (exchange, direction)
        compare(exchange, direction, queue.pop(0))
    assert not any(messages.values())


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("capture", PARTS, ids=lambda path: path.name)
def test_fields_of_partial_captures(script: Path, capture: Path) -> None:
    messages, compared = by_id(shown(pdml(script, capture))), 0
    for exchange, direction, ports in messages_of(capture):
        header = header_of(exchange, direction)
        queue = messages[ports, str(exchange.correlation_id)]
        if message := next((each for each in queue if each.header == header), None):
            queue.remove(message)
            compare(exchange, direction, message)
            compared += 1
    assert compared > 2  # with 96 bytes of each packet, only three messages are complete


def test_a_later_pass_links_messages_in_both_directions(script: Path) -> None:
    text = pdml(script, CAPTURES / "librdkafka-mock-produce.pcap", "-2")
    messages = shown(text)
    packets = {(each.packet, each.header["correlation_id"]): each for each in messages}
    linked = 0
    for each in messages:
        if "response_in" in each.links:
            response = packets[int(each.links["response_in"]), each.header["correlation_id"]]
            assert response.links["response_to"] == str(each.packet)
            assert response.ports == each.ports[::-1]
            linked += 1
    assert linked == sum("latency" in each.links for each in messages) > 60


@pytest.mark.parametrize("name", ["kafka-3-kafka-python", "kafka-3-java-0-11", "kafka-4-quorum"])
def test_headers_of_batches_equal_the_table(script: Path, name: str) -> None:
    capture = CAPTURES / f"{name}.pcap.zst"
    same = ("magic", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
    ours: dict[int, list[dict[str, str]]] = defaultdict(list)
    for row in open_capture(capture).tables("batches")["batches"].to_pylist():
        if row["magic"] is not None and row["api"] == "Fetch":
            values = {each: row[each] for each in same}
            if row["magic"] == 2:  # an older compressed message has the offset of its last record
                values |= {each: row[each] for each in ("base_offset", "record_count")}
                values["max_timestamp"] = row["max_timestamp"].value // 10**6
            texts = {each: str(value) for each, value in values.items() if value is not None}
            ours[row["magic"]].append(texts)
    theirs: dict[int, list[dict[str, str]]] = defaultdict(list)
    for message in shown(pdml(script, capture, "-Y", "kafkad.api_key == 1 && kafkad.batch")):
        if message.header["api_key"] == "1":
            for batch in message.batches:
                theirs[int(batch["magic"])].append(batch)
    assert ours.keys() == theirs.keys()
    for magic, rows in ours.items():
        for row, batch in zip(rows, theirs[magic], strict=True):
            assert {each: batch.get(each) for each in row} == row


@pytest.mark.parametrize("name", ["kafka-4-sasl", "kafka-4-admin"])
def test_no_password_is_shown(script: Path, name: str) -> None:
    capture = CAPTURES / f"{name}.pcap.zst"
    options = ("-Y", "kafkad", "-T", "pdml", "-J", "kafkad")
    text = tshark(script, capture, *options)
    for secret in PASSWORDS:
        for form in (secret.decode(), secret.hex(), secret.hex(":"), b64encode(secret).decode()):
            assert form not in text
    assert "[redacted]" in text
    assert b"alice-secret".hex() in tshark(
        script, CAPTURES / "kafka-4-sasl.pcap.zst", *options, "-o", "kafkad.show_secrets:TRUE"
    )


SECRET = b"hunter2"
SECRET_FORMS = (SECRET.decode(), SECRET.hex(), SECRET.hex(":"))
CONFIG_RECORD = b"\x01\x1e\x01\x04\x00" + SECRET
SCRAM_RECORD = b"\x01\xc8\x01\x01\x0b\x00" + SECRET
"""Beginnings of records in a batch (KIP-631): a null key, the size of the value, type, version."""


def produced(topic: str, *records: bytes | None) -> bytes:
    """A Produce request v3 with records for partitions of a topic, in turn."""
    partitions = [
        struct.pack(">i", index) + (b"\xff" * 4 if each is None else text(each, ">i"))
        for index, each in enumerate(records)
    ]
    body = struct.pack(">hhii", -1, 1, 30_000, 1) + text(topic) + struct.pack(">i", len(records))
    return request(0, 3, body + b"".join(partitions))


SENT = {
    "misaligned configuration": request(
        44, 0, struct.pack(">ibhi", 1, 2, 0, 1) + text(b"a.password\0\0\7" + SECRET)
    ),
    "misaligned name": request(51, 0, b"\0\2\x08" + SECRET + b"\1\0\x20"),
    "configuration": produced("damaged", CONFIG_RECORD),
    "SCRAM": produced("damaged", SCRAM_RECORD),
    "behind null": produced(METADATA_TOPIC, None, SECRET),
    "unknown tag": request(36, 2, b"\0\2t\1\x4d\7" + SECRET),
}
"""Requests with a secret; a later release may have secrets in unknown tagged fields."""


@pytest.fixture(scope="module")
def details(script: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """The details of each request, each of a connection of its own: without and with secrets."""
    path = tmp_path_factory.mktemp("secrets") / "sent.pcap"
    frames = [
        packet_bytes.frame(text(each, ">i"), src=40_000 + number)
        for number, each in enumerate(SENT.values())
    ]
    path.write_bytes(packet_bytes.pcap(frames))
    words = ("-Y", "kafkad", "-T", "pdml", "-J", "kafkad _ws.col")
    redacted, whole = (
        tshark(script, path, *words, "-o", f"kafkad.show_secrets:{show}").split("</packet>")[:-1]
        for show in ("FALSE", "TRUE")
    )
    return dict(zip(SENT, zip(redacted, whole, strict=True), strict=True))


@pytest.mark.parametrize("name", SENT)
def test_fields_that_may_be_secret_are_not_shown(
    details: dict[str, tuple[str, str]], name: str
) -> None:
    redacted, whole = details[name]
    assert "[redacted]" in redacted
    assert not any(form in redacted for form in SECRET_FORMS)
    assert any(form in whole for form in SECRET_FORMS)


def test_unknown_tagged_fields_have_a_size(details: dict[str, tuple[str, str]]) -> None:
    redacted, whole = details["unknown tag"]
    assert "tag 77" in redacted
    assert "7 bytes [redacted]" in redacted
    assert SECRET.hex() in whole


def response_frame(payload: bytes, seq: int, acknowledged: int = 7) -> bytes:
    """A packet from the broker to the client of `packet_bytes.frame`."""
    sent = packet_bytes.frame(payload, seq=seq, src=9092, dst=40000)
    addresses = sent[30:34] + sent[26:30]
    return sent[:26] + addresses + sent[34:42] + struct.pack(">I", acknowledged) + sent[46:]


def test_latency_of_a_response_behind_a_lost_one(script: Path, tmp_path: Path) -> None:
    asked, answered = text(request(18, 0, b""), ">i"), text(struct.pack(">ihi", 7, 0, 0), ">i")
    asked_later, answered_later = (each.replace(b"\0\7", b"\0\x08") for each in (asked, answered))
    packets = [
        packet_bytes.frame(asked),
        response_frame(answered[:9], 7),  # its last 5 bytes are lost
        packet_bytes.frame(asked_later, seq=1 + len(asked)),
        response_frame(answered_later, 7 + len(answered)),
    ]
    path = tmp_path / "lost.pcap"
    path.write_bytes(packet_bytes.pcap(packets, step=1000))
    (response,) = (each for each in shown(pdml(script, path)) if each.ports[0] == 9092)
    assert response.links == {"response_to": "3", "latency": "0.001000000"}


@pytest.mark.parametrize(("behind", "links"), [(0, {"response_to": "2"}), (1, {})])
def test_a_response_captured_before_its_request(
    script: Path, tmp_path: Path, behind: int, links: dict[str, str]
) -> None:
    """It acknowledges the request; the response to an earlier one with the same id does not."""
    asked, answered = text(request(18, 0, b""), ">i"), text(struct.pack(">ihi", 7, 0, 0), ">i")
    packets = [
        response_frame(answered, 1, 1 + len(asked) - behind),
        packet_bytes.frame(asked),
    ]
    path = tmp_path / "early.pcap"
    path.write_bytes(packet_bytes.pcap(packets, step=1000))
    options = ("-2", "-o", "tcp.reassemble_out_of_order:TRUE")
    response, sent = shown(pdml(script, path, *options))
    assert response.links == links | ({"latency": "-0.001000000"} if links else {})
    assert sent.links == ({"response_in": "1"} if links else {})
    assert response.header.get("api_key") == ("18" if links else None)


@pytest.mark.parametrize("following", [b"", text(request(18, 0, b""), ">i")])
def test_a_damaged_size_hides_no_later_request(
    script: Path, tmp_path: Path, following: bytes
) -> None:
    """Wireshark would wait for 50 MB, and show none of the connection's requests."""
    whole = text(request(18, 0, b""), ">i")
    damaged = struct.pack(">i", 50_000_000) + whole[4:] + following
    packets = [packet_bytes.frame(damaged), packet_bytes.frame(whole, seq=1 + len(damaged))]
    path = tmp_path / "size.pcap"
    path.write_bytes(packet_bytes.pcap(packets))
    first, *later = shown(pdml(script, path))
    assert first.header["api_key"] == "18"
    assert ("kafkad.malformed", "") in first.beside
    assert [each.header["api_key"] for each in later] == ["18"] * (2 if following else 1)
    assert not any(("kafkad.malformed", "") in each.beside for each in later)


def test_two_passes_without_details(script: Path) -> None:
    """The first of them has no fields of TCP."""
    capture = CAPTURES / "librdkafka-mock-produce.pcap"
    lines = tshark(script, capture, "-2")
    assert lines == tshark(script, capture)
    assert lines.count(" Kafka ") > 100


def test_the_middle_of_a_message_is_not_one(script: Path, tmp_path: Path) -> None:
    """A packet that was cut when it was captured ends the reassembly of a message."""
    first, long = text(request(18, 0, b""), ">i"), text(request(3, 0, bytes(300)), ">i")
    parts = [first, long[:40], long[40:240], long[240:], first]
    path, seq, written = tmp_path / "cut.pcap", 1, packet_bytes.pcap_header()
    for part in parts:
        packet = packet_bytes.frame(part, seq=seq)
        written += packet_bytes.pcap_record(packet[:100], length=len(packet))
        seq += len(part)
    path.write_bytes(written)
    messages = shown(pdml(script, path))
    assert [each.packet for each in messages if each.header] == [1, 5]


def test_filters_for_all_apis(script: Path) -> None:
    exchanges = list(open_capture(QUOTAS).exchanges())

    def responses(condition: str) -> list[str]:
        fields = ("-Y", f"{condition} && kafkad.response_to", "-T", "fields", "-e", "frame.number")
        return tshark(script, QUOTAS, *fields).split()

    slow = [str(each.response_packet) for each in exchanges if (each.latency_ms or 0) > 150]
    assert responses("kafkad.latency > 0.15") == slow
    assert len(responses('kafkad.error_code == "THROTTLING_QUOTA_EXCEEDED"')) == 2
    assert len(responses("kafkad.error")) == 3
    produced = [each.response_packet for each in exchanges if each.api == "Produce"]
    assert responses('kafkad.api_key == "Produce" && kafkad.topic == "bulk"') == [
        *map(str, produced)
    ]


FILTERED = ("fetch.max_bytes", "batch.codec", "topic", "null", "api_key", "error")


@pytest.fixture(scope="module")
def quotas(script: Path) -> dict[str, dict[str, str]]:
    """The values of these fields, by name and packet."""
    words = [
        "-e",
        "frame.number",
        *(word for name in FILTERED for word in ("-e", f"kafkad.{name}")),
    ]
    lines = tshark(script, QUOTAS, "-Y", "kafkad", "-T", "fields", *words).splitlines()
    packet, *columns = zip(*(line.split("\t") for line in lines), strict=True)
    return {
        name: {number: value for number, value in zip(packet, column, strict=True) if value}
        for name, column in zip(FILTERED, columns, strict=True)
    }


@pytest.mark.parametrize(
    "condition", ["fetch.max_bytes", "batch.codec", "topic", "null", "api_key == 1", "error"]
)
def test_filters_without_details(
    script: Path, quotas: dict[str, dict[str, str]], condition: str
) -> None:
    """Fields are only read where the filter needs them."""
    name, _, wanted = condition.partition(" == ")
    expected = [
        packet
        for packet, values in quotas[name].items()
        if not wanted or wanted in values.split(",")
    ]
    lines = tshark(script, QUOTAS, "-Y", f"kafkad.{condition}")
    assert [line.split()[0] for line in lines.splitlines()] == expected != []


def test_the_page_shows_current_output(script: Path) -> None:
    page = (CAPTURES.parent / "docs" / "howto" / "wireshark.md").read_text()
    examples = re.findall(r"^    \$ (tshark .*)\n((?:    (?!\$).*\n)+)", page, re.MULTILINE)
    assert examples
    for line, output in examples:
        words = shlex.split(line)
        capture, options = words[words.index("-r") + 1], words[words.index("-r") + 2 :]
        assert tshark(script, CAPTURES.parent / capture, *options) == textwrap.dedent(output)
    filters = re.findall(r"^    (kafkad\..*)$", page, re.MULTILINE)
    assert len(filters) > 4
    tshark(script, CAPTURES / "aiokafka-tansu.pcap", "-Y", " || ".join(f"({f})" for f in filters))


def test_a_second_copy_is_not_loaded(script: Path, tmp_path: Path) -> None:
    copy = shutil.copy(script, tmp_path)
    options = ["-X", f"lua_script:{copy}", "-Y", "kafkad", "-T", "fields", "-e", "kafkad.api_key"]
    capture = CAPTURES / "librdkafka-mock-produce.pcap"
    assert tshark(script, capture, *options) == tshark(script, capture, *options[2:]) != ""


@pytest.fixture(scope="module")
def kafka_in_others(script: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the plugin shows of traffic that is not Kafka, by the name of the capture."""
    path = tmp_path_factory.mktemp("other") / "all.pcap"
    captures = [recording(each) for each in OTHER]
    names = [each.name for each in captures for _ in each.packets]
    path.write_bytes(captures[0].data[:24] + b"".join(each.data[24:] for each in captures))
    lines = tshark(script, path, "-Y", "kafkad").splitlines()
    return {names[int(line.split()[0]) - 1]: line for line in lines}


@pytest.mark.parametrize("capture", OTHER, ids=lambda path: path.name)
def test_traffic_that_is_not_kafka(capture: Path, kafka_in_others: dict[str, str]) -> None:
    assert kafka_in_others.get(capture.name) is None


@pytest.mark.parametrize("name", ["kafka-4-java", "kafka-4-sasl", "kafka-3-java-0-10"])
@pytest.mark.parametrize("seed", range(3))
def test_damage_is_no_lua_error(script: Path, tmp_path: Path, name: str, seed: int) -> None:
    whole = recording(CAPTURES / f"{name}.pcap.zst")
    rng, damaged = random.Random(seed), whole.made_of(())
    for packet in map(bytearray, whole.packets):
        for _ in range(rng.choice((0, 1, 5))):
            if len(packet) > TCP_HEADERS:
                position = rng.randrange(TCP_HEADERS, len(packet))
                packet[position] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        if rng.random() > 0.05:
            damaged += packet
    path = tmp_path / "damaged.pcap"
    path.write_bytes(damaged)
    text = pdml(script, path)
    assert "kafkad.malformed" in text
    assert "kafkad.latency" in text

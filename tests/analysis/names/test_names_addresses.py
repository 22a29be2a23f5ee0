"""Names of addresses: files, pcapng, brokers; where they are shown, and in filters."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pyarrow as pa
import pytest

import dissector
from analysis.input.times import time_ns
from analysis.names.addresses import Names
from analysis.names.files import read_names
from dissector.errors import DissectorError
from tests.analysis.answering import CAPTURES
from tests.analysis.commands import Ran
from tests.dissector.packets.packet_bytes import (
    frame,
    ng_block,
    ng_enhanced,
    ng_interface,
    ng_option,
    ng_section,
)

DELAY = str(CAPTURES / "kafka-4-net-delay.pcap.zst")
REPLICATED = str(CAPTURES / "kafka-4-replicated.pcap.zst")
QUOTAS = str(CAPTURES / "kafka-4-quotas.pcap.zst")
POD = {
    "kind": "Pod", "metadata": {"name": "billing-1", "namespace": "shop"},
    "spec": {}, "status": {"podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}, {"ip": "fd00::7"}]},
}  # fmt: skip
AGENT = {
    "kind": "Pod", "metadata": {"name": "agent", "namespace": "system"},
    "spec": {"hostNetwork": True}, "status": {"podIP": "10.0.0.1"},
}  # fmt: skip
NODE = {
    "kind": "Node", "metadata": {"name": "worker-1"}, "spec": {},
    "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"},
                             {"type": "Hostname", "address": "worker-1"}]},
}  # fmt: skip
SERVICE = {
    "kind": "Service", "metadata": {"name": "kafka", "namespace": "shop"},
    "spec": {"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5"]}, "status": {},
}  # fmt: skip


def named(path: Path, text: str) -> Names:
    path.write_text(text)
    return Names(read_names(path))


@pytest.mark.parametrize(
    "text",
    [
        "# a comment\n10.1.0.7\tbilling-1 alias # here\n::1 localhost\n",
        "10.1.0.7,billing-1\n10.1.0.0/16,branch\n",
        "Name,IP\nbilling-1,10.1.0.7\n",
        '{"10.1.0.7": ["billing-1", "alias"]}',
        '[{"name": "billing-1", "address": "10.1.0.7"}]',
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [POD]}),
        json.dumps({"apiVersion": "v1", **POD}),
    ],
)
def test_files_of_names(tmp_path: Path, text: str) -> None:
    names = named(tmp_path / "names", text)
    assert names.shown("10.1.0.7") == "billing-1 (10.1.0.7)"
    assert names.shown("10.1.0.7:9092") == "billing-1 (10.1.0.7:9092)"
    assert names.shown("10.2.0.7") == "10.2.0.7"


def test_kubernetes_with_several_namespaces(tmp_path: Path) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": [POD, AGENT, NODE, SERVICE]}
    names = named(tmp_path / "names", json.dumps(items))
    assert names.all_names("10.1.0.7") == names.all_names("[fd00::7]:9092") == ["shop/billing-1"]
    assert names.all_names("10.0.0.1") == ["worker-1"]  # not the pod in the host's network
    assert names.all_names("10.96.0.5") == ["shop/kafka"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10.0.0.9 kafka-1\nkafka-2 10.0.0.10\n", "line 2: 'kafka-2' is neither an address"),
        ("10.0.0.9\n", "line 1: '10.0.0.9' has no name"),
        ("10.0.0.9,\n", "line 1: '10.0.0.9,' has no name"),
        ("{", "is not valid JSON"),
        pytest.param("[" * 100_000, "is not valid JSON", id="nested"),
        ("[1]", "1 is not an object with address and name"),
        ('{"10.0.0.9": 1}', "1 is not a name"),
        ("# nothing\n", "contains no names of addresses"),
    ],
)
def test_a_wrong_file_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DissectorError, match="names") as error:
        named(tmp_path / "names", text)
    assert message in str(error.value)


def test_the_smallest_network_counts(tmp_path: Path) -> None:
    names = named(tmp_path / "names", "10.0.0.0/8 a\n10.1.0.0/16 b\n10.1.2.3 c\nfd00::/8 d\n")
    addresses = ("10.2.0.1", "10.1.0.1", "10.1.2.3", "fd00::1")
    assert [names.all_names(each) for each in addresses] == [["a"], ["b"], ["c"], ["d"]]


def test_addresses_in_a_sentence() -> None:
    names = Names()
    names.learn_hosts([("10.1.0.7", "billing-1"), ("fd00::9", "kafka-1")])
    hosts = ["kafka-1", "10.0.0.10"]
    names.learn_brokers(pa.table({"broker_id": [1, 2], "host": hosts, "port": [9092, 9092]}))
    text = "10.1.0.7 (v1.2.3.4.5) sent 110.1.0.7 to [fd00::9]:9092, 10.0.0.10:9092 at 04:17:40."
    assert names.in_text(text) == (
        "billing-1 (10.1.0.7) (v1.2.3.4.5) sent 110.1.0.7 to kafka-1 ([fd00::9]:9092, id 1), "
        "10.0.0.10:9092 (id 2) at 04:17:40."
    )


def test_an_address_that_several_brokers_share() -> None:
    """A load balancer that all brokers advertise; the second host is its name."""
    names = Names()
    names.learn_hosts([("10.0.0.9", "kafka")])
    hosts = ["10.0.0.9", "10.0.0.9", "kafka"]
    names.learn_brokers(pa.table({"broker_id": [2, 1, 1], "host": hosts, "port": [9092] * 3}))
    assert names.shown("10.0.0.9:9092") == "kafka (10.0.0.9:9092, id 1, id 2)"
    assert names.brief("10.0.0.9:9092") == "kafka:9092 (id 1, id 2)"
    assert names.all_names("10.0.0.9:9092") == ["kafka", "10.0.0.9", "2", "1"]


@pytest.mark.parametrize("order", ["<", ">"])
def test_name_resolution_blocks(tmp_path: Path, order: str) -> None:
    """draft-ietf-opsawg-pcapng, section 4.5: record types 1 and 2, several names, an option."""
    records = ng_option(1, bytes([10, 0, 0, 9]) + b"kafka-1\0kafka-1.local\0", order=order)
    records += ng_option(2, bytes(15) + b"\1" + b"localhost\0", order=order)
    records += ng_option(3, bytes(6) + b"\0", order=order) + ng_option(1, b"\1\2\3", order=order)
    options = ng_option(2, b"dns.local", order=order)
    blocks = ng_section(order=order) + ng_interface(order=order)
    blocks += ng_enhanced(frame(b"abc"), order=order)
    blocks += ng_block(4, records + struct.pack(order + "HH", 0, 0) + options, order=order)
    path = tmp_path / "x.pcapng"
    path.write_bytes(blocks)
    with dissector.open_capture(path) as capture:
        capture.tables()
        assert [*capture.host_names] == [
            ("10.0.0.9", "kafka-1"), ("10.0.0.9", "kafka-1.local"), ("::1", "localhost")
        ]  # fmt: skip


def test_names_are_shown_and_not_exported(ran: Ran, tmp_path: Path) -> None:
    file = tmp_path / "names"
    file.write_text("198.51.100.1 kafka-1\n198.51.100.0/24 branch\n")
    given = (DELAY, "--names", str(file))
    table = ran("latency", *given, "--by", "client,broker").out
    assert "branch (198.51.100.2)  kafka-1:9092 (id 1)" in table
    rows = ran("latency", *given, "--by", "client,broker", "--vertical").out
    assert "kafka-1 (198.51.100.1:9092, id 1)" in rows
    exported = ran("latency", *given, "--by", "client,broker", "--format", "csv").out
    assert '"198.51.100.2","198.51.100.1:9092"' in exported
    assert "client branch (198.51.100.2:" in ran("show", *given, "--limit", "1").out
    summary = ran("summary", *given).out
    assert "branch (198.51.100.2)" in summary
    assert f"--names {file}" in summary  # in the next commands


def test_filters_accept_names_and_ids(ran: Ran, tmp_path: Path) -> None:
    file = tmp_path / "names"
    file.write_text("127.0.0.1 node-a\n")
    counted = ("export", REPLICATED, "--columns", "broker_port", "--format", "csv")
    # Metadata of the capture: broker 1 has port 9092, and broker 2 has port 9093.
    assert set(ran(*counted, "--broker", "2").out.splitlines()[1:]) == {"9093"}
    assert "864 of 864" in ran(*counted, "--names", str(file), "--client", "node-*").err
    assert "0 of 864" in ran(*counted, "--names", str(file), "--broker", "node-b").err
    named = "list_contains(broker_names, 'node-a')"
    assert "864 of 864" in ran(*counted, "--names", str(file), "--where", named).err


def test_times_in_a_zone(ran: Ran) -> None:
    summary = ran("summary", QUOTAS, "--tz", "Asia/Tokyo").out
    assert "2026-11-21 13:17:34.951 to 13:18:27.984 Asia/Tokyo" in summary
    since = ("--since", "13:18:20", "--format", "csv")
    rows = ran("errors", QUOTAS, "--tz", "Asia/Tokyo", *since).out
    assert "2026-11-21T04:18:27" in rows
    assert "2026-11-21T04:18:11" not in rows
    shown = ran("show", QUOTAS, "--tz", "Asia/Tokyo", "--limit", "1", "--format", "json").out
    assert '"request_time": "2026-11-21T04:17:35.080075399Z"' in shown
    assert "Did you mean Europe/Berlin?" in ran("summary", QUOTAS, "--tz", "Berlin", status=2).err


def test_a_time_of_day_in_a_zone_with_summer_time() -> None:
    from zoneinfo import ZoneInfo

    berlin = ZoneInfo("Europe/Berlin")
    start = time_ns("2026-03-29T00:30:00Z", None)  # 01:30; at 02:00, clocks go to 03:00
    assert time_ns("03:10", start, berlin) == time_ns("2026-03-29T01:10:00Z", None)
    assert time_ns("2026-03-29T03:10", None, berlin) == time_ns("2026-03-29T01:10:00Z", None)
    assert time_ns("2026-03-29T03:10+00:00", None, berlin) == time_ns("2026-03-29T03:10:00Z", None)

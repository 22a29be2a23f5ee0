"""Several clusters in one capture: the warning, and the filter by cluster."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import analysis
from analysis import Filter, load
from analysis.answers import ANSWERS
from analysis.input.cluster_connections import CLUSTER_TABLES, ClusterConnections
from analysis.names.addresses import Names
from analysis.sql.query import connected
from dissector.capture import open_capture
from dissector.errors import DissectorError
from dissector.tables import TABLES
from tests.analysis.commands import ROOT, run
from tests.analysis.made_rows import START, connection
from tools.record.kafka.truth import read

CAPTURE = "captures/kafka-4-two-clusters.pcap.zst"
FIRST, SECOND = "cmVjb3JkZXIta2Fma2EtMQ", "cmVjb3JkZXIta2Fma2EtMg"
"""Ids of the recorder (tools/record/kafka), by which the disks of brokers were formatted."""
BROKERS = {FIRST: "127.0.0.1", SECOND: "127.0.0.2"}

Tables = dict[str, list[dict[str, Any]]]


def described(command: str) -> set[tuple[str, ...]]:
    """Group, topic, partition, committed offset, end and lag in kafka-consumer-groups."""
    lines = [row["line"].split() for row in read("kafka-4-two-clusters") if "command" in row]
    named = [row["command"] for row in read("kafka-4-two-clusters") if "command" in row]
    return {
        tuple(words[:6])
        for name, words in zip(named, lines, strict=True)
        if name == command and words[0] == "billing"
    }


@pytest.mark.parametrize(("cluster", "command"), [(FIRST, "first"), (SECOND, "second")])
def test_lag_is_that_of_the_tool(cluster: str, command: str) -> None:
    done = run("lag", CAPTURE, "--cluster", cluster, "--format", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    names = ("group_id", "topic", "partition", "committed_offset", "end_offset", "lag")
    lags = {tuple(str(row[name]) for name in names) for row in rows}
    assert lags == described(command) != set()
    assert done.stderr.startswith(f"Filter: cluster {cluster}: ".encode())
    assert done.stderr.endswith(b" of 170 exchanges\n")
    assert b"Warning" not in done.stderr


@pytest.mark.parametrize("command", ["lag", "summary", "diagnose"])
def test_a_warning_names_the_clusters(command: str, one_rule: None) -> None:
    lines = run(command, CAPTURE).stderr.decode().splitlines()
    assert lines[0].startswith("Warning: this capture has 2 clusters.")
    assert lines[1:] == [
        f"  --cluster {FIRST}  (127.0.0.1:9092, 127.0.0.1:19092)",
        f"  --cluster {SECOND}  (127.0.0.2:9093, 127.0.0.2:19093)",
    ]
    assert b"Warning" not in run(command, CAPTURE, "--cluster", FIRST).stderr


@pytest.mark.parametrize("cluster", BROKERS)
def test_a_record_of_one_cluster_is_traced(cluster: str) -> None:
    """Both clusters have an offset 3 of the topic. `--topic` is an option of `trace`, no filter."""
    options = ("--topic", "orders", "--offset", "3", "--format", "jsonl")
    assert b"add its option" in run("trace", CAPTURE, *options).stderr
    done = run("trace", CAPTURE, *options, "--cluster", cluster)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["broker"].partition(":")[0] for row in rows} == {BROKERS[cluster]}
    records = {(row["topic"], row["partition"], row["offset"]) for row in rows}
    assert records == {("orders", n, 3) for n in range(1 if cluster == FIRST else 2)}
    assert [row["event"] for row in rows].count("produced") == len(records)
    assert b"Warning" not in done.stderr


@pytest.mark.parametrize(("cluster", "command"), [(FIRST, "first"), (SECOND, "second")])
def test_a_filter_by_the_brokers_of_a_cluster_selects_it(cluster: str, command: str) -> None:
    """No other filter selects the end of a partition."""
    done = run("lag", CAPTURE, "--broker", BROKERS[cluster], "--format", "jsonl")
    assert {str(json.loads(line)["lag"]) for line in done.stdout.splitlines()} == {
        lag for *_, lag in described(command)
    }
    assert done.stderr.startswith(f"Filter: cluster {cluster}, broker = ".encode())
    assert b"Warning" not in done.stderr


def test_brokers_of_several_clusters_are_mixed() -> None:
    both = [word for ip in BROKERS.values() for word in ("--broker", ip)]
    warning = b"brokers with the same name are mixed. To select a cluster, add its option"
    assert warning in run("lag", CAPTURE, *both).stderr
    piped = run("lag", "-", "--broker", BROKERS[FIRST], stdin=(ROOT / CAPTURE).read_bytes())
    assert warning in piped.stderr  # it can be read only once


def test_an_answer_of_python_warns() -> None:
    with pytest.warns(UserWarning, match="this capture has 2 clusters") as caught:
        mixed = analysis.lag(ROOT / CAPTURE)
    (warned,) = caught
    assert warned.filename == __file__
    assert f'load(paths, chosen=Filter(cluster="{FIRST}"))' in str(warned.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = analysis.lag(load(ROOT / CAPTURE, ANSWERS["lag"].tables, Filter(cluster=[FIRST])))
        analysis.lag(ROOT / "captures/kafka-4-java.pcap.zst")
    lags = {str(lag) for lag in chosen["lag"]}
    assert lags == {lag for *_, lag in described("first")} != {str(lag) for lag in mixed["lag"]}


def test_a_cluster_has_the_rows_of_its_brokers_in_all_tables() -> None:
    """A connection of one cluster shows in no table of the other one, and none is lost."""
    whole = load(ROOT / CAPTURE, [*TABLES])
    parts = [load(ROOT / CAPTURE, [*TABLES], Filter(cluster=[each])) for each in BROKERS]
    for name, rows in whole.items():
        assert len(rows) == sum(len(part[name]) for part in parts), name
    for part, address in zip(parts, BROKERS.values(), strict=True):
        assert set(part["connections"]["broker_ip"]) == {address}
        assert set(part["brokers"]["host"]) == {address}
        assert part["topics"]["topic_id"].nunique() == 1


def test_answers_are_those_of_a_capture_of_one_cluster(tmp_path: Path) -> None:
    cut = tmp_path / "cut.pcapng"
    assert not run("cut", CAPTURE, "--broker", BROKERS[SECOND], "-o", str(cut)).returncode
    names = ("topology", "replication", "delay", "groups", "leadership", "audit", "skew")
    needed = {table for name in names for table in ANSWERS[name].tables}
    with (
        connected(load(ROOT / CAPTURE, needed, Filter(cluster=[SECOND])), needed) as chosen,
        connected(load(cut, needed), needed) as alone,
    ):
        for answer in (ANSWERS[name] for name in names):
            columns = [c.name for c in answer.columns if "packet" not in c.name]
            columns = [c for c in columns if c != "connection_id"]
            frames = [answer.function(each)[columns] for each in (chosen, alone)]
            assert frames[0].equals(frames[1]), answer.name


def test_exported_tables(tmp_path: Path) -> None:
    folder = str(tmp_path / "tables")
    assert not run("export", CAPTURE, "--table", "all", "-o", folder).returncode
    lag = ("--cluster", SECOND, "--format", "csv")
    assert run("lag", folder, *lag).stdout == run("lag", CAPTURE, *lag).stdout != b""


def test_tables_in_memory() -> None:
    tables = open_capture(ROOT / CAPTURE).tables([*TABLES])
    chosen = Filter(cluster=[FIRST]).apply(tables)
    assert set(chosen["exchanges"]["broker_ip"].to_pylist()) == {BROKERS[FIRST]}
    with pytest.raises(DissectorError, match="needs the table clusters"):
        Filter(cluster=[FIRST]).apply({"exchanges": tables["exchanges"]})


def test_unknown_clusters() -> None:
    done = run("lag", CAPTURE, "--cluster", FIRST[:-1])
    assert done.returncode == 1
    assert f"clusters {FIRST} (127.0.0.1:9092, 127.0.0.1:19092), {SECOND}".encode() in done.stderr
    done = run("lag", "captures/kafka-4-cut-requests.pcap.zst", "--cluster", FIRST)
    assert b"this capture has no cluster ids; use --broker" in done.stderr


def test_a_cluster_needs_a_second_pass() -> None:
    done = run("lag", "-", "--cluster", FIRST, stdin=(ROOT / CAPTURE).read_bytes())
    assert b"--cluster needs a second pass: use --broker, or a file" in done.stderr
    with pytest.raises(DissectorError, match="--cluster depends on the whole capture"):
        _ = Filter.parse(f"--cluster {FIRST}").sql


def message(connection_id: int, cluster_id: str) -> dict[str, Any]:
    """A row of `clusters`."""
    row = dict.fromkeys(TABLES["clusters"].schema.names) | {"time": START, "api": "Metadata"}
    row |= {"broker_ip": "10.0.0.9", "broker_port": 9092}
    return row | {"connection_id": connection_id, "cluster_id": cluster_id}


def broker(connection_id: int, host: str, port: int) -> dict[str, Any]:
    """A row of `brokers`."""
    row = dict.fromkeys(TABLES["brokers"].schema.names) | {"time": START, "broker_id": 1}
    return row | {"connection_id": connection_id, "host": host, "port": port}


Selected = Callable[[Tables, str], tuple[Sequence[int], int]]


@pytest.fixture
def selected() -> Selected:
    """The connections of a cluster, and the number of those whose cluster is unknown."""

    def select(tables: Tables, cluster: str) -> tuple[Sequence[int], int]:
        rows = (
            (name, pa.RecordBatch.from_pylist(tables.get(name, []), TABLES[name].schema))
            for name in CLUSTER_TABLES
        )
        names = Names([(ip_network("10.0.0.7"), "kafka-7")])
        clusters = ClusterConnections.of(rows, [cluster], names)
        return sorted(clusters.connections.to_pylist()), clusters.unknown

    return select


def test_connections_without_a_cluster_id(selected: Selected) -> None:
    """They belong to the cluster of their broker, or of its address, as far as it is one."""
    ends = (
        ("10.0.0.9", 9092), ("10.0.1.9", 9092),  # with the id of a and b
        ("10.0.0.9", 9092), ("10.0.0.8", 9092), ("10.0.0.7", 9092),  # a: same, advertised, by name
        ("10.0.0.9", 9093),  # a: the address
        ("10.0.2.9", 9092),  # unknown
    )  # fmt: skip
    connections = [
        connection(connection_id=n, broker_ip=ip, broker_port=port)
        for n, (ip, port) in enumerate(ends)
    ]
    brokers = [broker(0, "10.0.0.8", 9092), broker(0, "kafka-7", 9092), broker(1, "10.0.1.9", 9092)]
    clusters = [message(0, "a"), message(1, "b")]
    tables = {"connections": connections, "brokers": brokers, "clusters": clusters}
    assert selected(tables, "a") == ([0, 2, 3, 4, 5], 1)
    assert selected(tables, "b") == ([1], 1)


def test_a_broker_of_two_clusters(selected: Selected) -> None:
    """As behind a load balancer: only connections with an id of their own are known."""
    tables = {
        "connections": [connection(connection_id=n) for n in range(3)],
        "clusters": [message(0, "a"), message(1, "b")],
    }
    assert selected(tables, "a") == ([0], 1)

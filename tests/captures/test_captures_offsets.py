"""The opt-in tables agree with each message, read by the other decoder.

`Exchange.request.body` and `.response.body` come from the explaining walker, field by field, under
the names of Kafka's protocol guide. Here a loop makes of them what the column walker, the roles and
the joins of requests with responses made of all messages at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from dissector.capture import open_capture
from dissector.errors import DecodeError, UnknownVersion
from dissector.exchanges.exchange import Exchange
from dissector.protocol.registry import error_name
from dissector.tables.memberships import GROUP_TYPES
from tests.captures.recorded import CAPTURES, SMALLER

WHOLE = sorted(
    path.name
    for path in SMALLER
    if not path.name.startswith(("kafka-4-cut-", "chatter", "kafka-4-quorum"))
)

Row = dict[str, Any]

# The fields of each API that are columns of the table: of the request, then of the response.
OFFSETS = {
    "Produce": ({}, {"base_offset": "offset", "log_start_offset": "log_start_offset"}),
    "Fetch": (
        {"fetch_offset": "offset", "current_leader_epoch": "leader_epoch"},
        {
            "high_watermark": "high_watermark",
            "last_stable_offset": "last_stable_offset",
            "log_start_offset": "log_start_offset",
        },
    ),
    "ShareFetch": ({}, {}),
    "ListOffsets": (
        {"timestamp": "asked_timestamp", "current_leader_epoch": "leader_epoch"},
        {"offset": "offset"},
    ),
    "OffsetCommit": (
        {"committed_offset": "offset", "committed_leader_epoch": "leader_epoch"},
        {},
    ),
    "TxnOffsetCommit": (
        {"committed_offset": "offset", "committed_leader_epoch": "leader_epoch"},
        {},
    ),
    "OffsetFetch": (
        {},
        {"committed_offset": "offset", "committed_leader_epoch": "leader_epoch"},
    ),
    "OffsetForLeaderEpoch": ({"leader_epoch": "leader_epoch"}, {"end_offset": "offset"}),
    "ReadShareGroupState": ({}, {"start_offset": "offset"}),
    "WriteShareGroupState": (
        {"start_offset": "offset", "delivery_complete_count": "done_count"},
        {},
    ),
    "ReadShareGroupStateSummary": (
        {},
        {"start_offset": "offset", "delivery_complete_count": "done_count"},
    ),
    "DescribeShareGroupOffsets": ({}, {"start_offset": "offset", "lag": "told_lag"}),
}
LEADER = {"current_leader": {"leader_id": "told_leader", "leader_epoch": "told_leader_epoch"}}
TOPICS = ("topic_data", "responses", "topics", "results")
INDEX = ("index", "partition", "partition_index")
SIGNED = ("asked_timestamp", "error_code")


@cache
def rows_of(name: str) -> dict[str, list[Row]]:
    """The rows of the opt-in tables of one capture."""
    tables = open_capture(CAPTURES / name).tables(["partitions", "memberships", "transactions"])
    return {table: rows.to_pylist() for table, rows in tables.items()}


@cache
def exchanges(name: str) -> list[tuple[Exchange, Row, Row | None]]:
    """The exchanges whose request can be read: its body, and that of the response if it can."""
    read = []
    for each in open_capture(CAPTURES / name).exchanges():
        request, response = body_of(each, "request"), body_of(each, "response")
        if request is not None:
            read.append((each, request, response))
    return sorted(read, key=lambda item: item[0].request_time)


def body_of(exchange: Exchange, side: str) -> Row | None:
    try:
        message = getattr(exchange, side)
    except (DecodeError, UnknownVersion):  # cut, or of the mock broker
        return None
    return None if message is None else message.body


def partitions_of(body: Row, group: str | None) -> Iterator[tuple[str | None, str, int, Row]]:
    """Group, topic or its id, partition, and the fields of the partition, of one body."""
    for each in body.get("groups", ()):
        yield from partitions_of(each, each["group_id"])
    for topics in (body.get(name) or () for name in TOPICS):
        for topic in topics:
            name = topic.get("name") or topic.get("topic") or topic["topic_id"]
            lists = [value for value in topic.values() if isinstance(value, list)]
            for part in (part for partitions in lists for part in partitions):
                if isinstance(part, int):
                    yield group, name, part, {}
                else:
                    yield group, name, next(part[key] for key in INDEX if key in part), part


def row_of_partition(part: Row, names: Row) -> Row:
    """The columns of the table for one partition of one body."""
    row = {name: part[key] for key, name in names.items() if part.get(key) is not None}
    if part.get("old_style_offsets"):
        row["offset"] = part["old_style_offsets"][0]
    for key, inner in LEADER.items():
        row |= {name: part[key][field] for field, name in inner.items() if key in part}
    if "error_code" in part:
        row["error_code"] = part["error_code"]
    if part.get("records"):
        row["bytes"] = len(part["records"])
    return {name: value for name, value in row.items() if name in SIGNED or value >= 0}


def expected_partitions(name: str) -> dict[tuple[Any, ...], Row]:
    rows: dict[tuple[Any, ...], Row] = defaultdict(dict)
    for each, request, response in exchanges(name):
        for message, names in zip((request, response), OFFSETS.get(each.api, ()), strict=False):
            partitions = partitions_of(message or {}, request.get("group_id"))
            for group, topic, partition, part in partitions:
                key = (each.connection_id, each.correlation_id, each.request_time)
                rows[(*key, group, topic, partition)] |= row_of_partition(part, names)
    return rows


@pytest.mark.parametrize("name", WHOLE)
def test_partitions(name: str) -> None:
    expected = expected_partitions(name)
    names = {
        *SIGNED,
        *(name for pair in OFFSETS.values() for each in pair for name in each.values()),
    }
    actual = {}
    for row in rows_of(name)["partitions"]:
        key = (row["connection_id"], row["correlation_id"], row["time"].value)
        topic = row["topic_id"] or row["topic"]
        actual[(*key, row["group_id"], topic, row["partition"])] = row
    assert actual.keys() == expected.keys()
    for key, row in expected.items():
        shown = {name: actual[key][name] for name in (*names, "bytes", "told_leader")}
        if "error_code" not in row:
            row["error_code"] = shown["error_code"]  # of the whole response
        assert shown == dict.fromkeys(shown) | {k: v for k, v in row.items() if k in shown}, key


@pytest.mark.parametrize("name", WHOLE)
def test_memberships(name: str) -> None:
    rows = rows_of(name)["memberships"]
    asked = [each for each in exchanges(name) if each[0].api in GROUP_TYPES]
    assert len(rows) == len(asked)
    for row, (each, request, answer) in zip(rows, asked, strict=True):
        response = answer or {}
        assert (row["api"], row["time"].value) == (each.api, each.request_time)
        assert row["group_id"] == request["group_id"]
        assert row["member_id"] == (each.member_id or None)
        static = [request, *request.get("members", ())]
        names = [each.get("group_instance_id") or each.get("instance_id") for each in static]
        assert row["group_instance_id"] == next(filter(None, names), None)
        spoken = request.get("member_epoch", request.get("generation_id"))
        assert row["request_generation"] == spoken
        given = response.get("member_epoch", response.get("generation_id"))
        alive = given is not None and (given >= 0 or row["group_type"] != "classic")
        assert row["generation"] == (given if alive else None)
        assert row["leader"] == (response.get("leader") or None)
        assert row["session_timeout_ms"] == request.get("session_timeout_ms")
        timeout = request.get("rebalance_timeout_ms")
        assert row["rebalance_timeout_ms"] == (None if timeout == -1 else timeout)  # KIP-848
        members = response.get("members") if each.api == "JoinGroup" else request.get("members")
        assert row["member_count"] == (len(members or ()) or None)
        protocol = response.get("protocol_name") or request.get("protocol_name")
        assert row["protocol"] == (protocol or request.get("server_assignor"))
        reasons = [request.get("reason"), *(m.get("reason") for m in request.get("members", ()))]
        assert row["reason"] == next(filter(None, reasons), None)
        assert row["error_code"] == each.error_code


def transactions_of(body: Row) -> Iterator[Row]:
    """The fields of each transaction of a request."""
    for part in body.get("markers") or body.get("transactions") or [body]:
        plain = {key.removeprefix("v3_and_below_"): value for key, value in part.items()}
        indexes = [
            index
            for topic in plain.get("topics", ())
            for index in topic.get("partitions", topic.get("partition_indexes", ()))
        ]
        yield {
            "transactional_id": plain.get("transactional_id"),
            "producer_id": plain.get("producer_id"),
            "producer_epoch": plain.get("producer_epoch"),
            "committed": plain.get("committed", plain.get("transaction_result")),
            "transaction_timeout_ms": plain.get("transaction_timeout_ms"),
            "group_id": plain.get("group_id"),
            "partition_count": len(indexes) or None,
            "verify_only": plain.get("verify_only"),
        }


APIS = (
    "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn",
    "WriteTxnMarkers",
)  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_transactions(name: str) -> None:
    rows = rows_of(name)["transactions"]
    expected = []
    for each, request, response in exchanges(name):
        for part in transactions_of(request) if each.api in APIS else ():
            given = response or {}
            part |= {f"given_{key}": given.get(key) for key in ("producer_id", "producer_epoch")}
            numbers = [key for key in part if key.endswith(("producer_id", "producer_epoch"))]
            part |= {key: None for key in numbers if part[key] is None or part[key] < 0}
            part |= {"error": None if each.error_code is None else error_name(each.error_code)}
            expected.append(part | {"api": each.api})
    shown = [{key: row[key] for key in expected[0]} for row in rows] if rows else []
    assert shown == expected

"""Relations between the answers of a capture and those of a changed copy, or of its parts.

They need no expected value: if all times are an hour later, so are those of each answer, and
nothing else has changed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import pandas as pd
import pytest

from analysis.answers import ANSWERS
from analysis.input.filtered import FilteredCapture
from analysis.input.filters import Filter
from analysis.input.selection import INDEPENDENT
from analysis.sql.query import connected
from dissector.capture import Capture, open_capture
from dissector.pipeline import collected
from tests.analysis.answering import ANSWER_TABLES, path_of
from tests.analysis.same_answers import variants
from tests.captures.recorded import ETHERNET, Packet, moved, read, write

Rows: TypeAlias = list[dict[str, Any]]
NAME: Final = "kafka-4-errors"
PACKETS: Final = frozenset({"first_packet", "slowest_packet", "request_packet", "connection_id"})
"""Columns that depend on the other packets of the capture."""
CLOCK: Final = frozenset({"age_p50_ms", "age_max_ms", "settings"})
"""Columns that compare the clock of the capture with timestamps of records."""


def answers_of(path: Path) -> dict[str, Rows]:
    """The rows of each answer, with each choice of its options."""
    with connected(open_capture([path]).tables(ANSWER_TABLES), ANSWER_TABLES) as connection:
        return {
            f"{answer.name} {json.dumps(options)}": answer.arrow(connection, **options).to_pylist()
            for answer in ANSWERS.values()
            for options in variants(answer)
        }


def defaults_of(path: Path) -> dict[str, Rows]:
    """The rows of the answers `UNITED`, with their default options."""
    with connected(open_capture([path]).tables(ANSWER_TABLES), ANSWER_TABLES) as connection:
        return {name: ANSWERS[name].arrow(connection).to_pylist() for name in UNITED}


@cache
def recorded(name: str) -> tuple[Packet, ...]:
    return tuple(read(f"{name}.pcap.zst"))


@cache
def expected() -> dict[str, Rows]:
    return answers_of(path_of(NAME))


def without(rows: Rows, names: frozenset[str]) -> Rows:
    return [{name: row[name] for name in row if name not in names} for row in rows]


def value_later(value: Any, later: int) -> Any:
    return value + pd.Timedelta(later, "ns") if isinstance(value, pd.Timestamp) else value


@pytest.mark.parametrize("start", [5, 2**31 - 20], ids=["1970", "2038"])
def test_only_times_depend_on_the_time_of_the_capture(start: int, tmp_path: Path) -> None:
    packets = recorded(NAME)
    later = start * 10**9 - packets[0].time
    shifted = (replace(packet, time=packet.time + later) for packet in packets)
    answers = answers_of(write(tmp_path / "shifted.pcap", shifted))
    for key, rows in expected().items():
        if key == 'clients {"show": "settings"}':  # has linger.ms
            continue
        delayed = [
            {name: value_later(value, later) for name, value in row.items()}
            for row in without(rows, CLOCK)
        ]
        assert without(answers[key], CLOCK) == delayed, key


def test_no_answer_depends_on_the_ports_of_clients(tmp_path: Path) -> None:
    path = write(tmp_path / "moved.pcap", (moved(packet, 1, 0) for packet in recorded(NAME)))
    assert answers_of(path) == expected()


def in_network(packet: Packet, number: int) -> Packet:
    """The packet with this first byte of both addresses, which are those of IPv4."""
    frame = bytearray(packet.frame)
    for address in (ETHERNET + 12, ETHERNET + 16):
        frame[address] = number
    return replace(packet, frame=bytes(frame))


UNITED: Final = (
    "throttle", "errors", "unanswered", "topology", "versions", "groups", "lag", "delay", "network",
    "leadership", "batching", "audit", "fetches", "clients", "security", "duplicates",
)  # fmt: skip
"""Answers whose rows belong to a client, broker, group or topic."""


def test_captures_with_nothing_in_common_have_the_rows_of_both(tmp_path: Path) -> None:
    """The topics and groups of these recordings differ, and here also the addresses."""
    parts = [recorded(NAME), recorded("kafka-4-group-eager")]
    later = parts[0][0].time - parts[1][0].time
    parts[1] = tuple(replace(packet, time=packet.time + later) for packet in parts[1])
    moved_parts = [[in_network(each, 11 + n) for each in part] for n, part in enumerate(parts)]
    both = sorted((each for part in moved_parts for each in part), key=lambda each: each.time)
    first, second, united = (
        defaults_of(write(tmp_path / f"{number}.pcap", packets))
        for number, packets in enumerate((*moved_parts, both))
    )
    for name in UNITED:
        separate = without(first[name] + second[name], PACKETS)
        together = without(united[name], PACKETS)
        assert Counter(map(repr, separate)) == Counter(map(repr, together)), name


COUNTS: Final = {
    "latency": "count", "errors": "count", "unanswered": "requests", "batching": "batches",
    "fetches": "requests", "zones": "requests",
}  # fmt: skip
GROUPS: Final = ("client_id", "client", "broker", "software", "minute", "10s", "connection_id")


def test_counts_of_groups_are_those_of_the_tables() -> None:
    """`latency` has responses; `errors` rows; `fetches` those of Fetch; `zones` all requests."""
    tables = open_capture([path_of(NAME)]).tables(ANSWER_TABLES)
    exchanges, batches = (tables[name].to_pylist() for name in ("exchanges", "batches"))
    totals = {
        "latency": sum(row["latency_ms"] is not None for row in exchanges),
        "errors": len(tables["errors"]),
        "unanswered": sum(row["status"] == "unanswered" for row in exchanges),
        "batching": sum(row["api"] == "Produce" for row in batches),
        "fetches": sum(row["api"] == "Fetch" and bool(row["response_time"]) for row in exchanges),
        "zones": sum(row["status"] != "request_missing" for row in exchanges),
    }
    with connected(tables, ANSWER_TABLES) as connection:
        for name, total in totals.items():
            for by in (*GROUPS, *map(list, pairwise(GROUPS))):
                rows = ANSWERS[name].arrow(connection, by=by)
                assert sum(rows[COUNTS[name]].to_pylist()) == total > 0, (name, by)


def row_counts(capture: Capture | FilteredCapture) -> dict[str, Counter[str]]:
    """The rows of the tables that follow from exchanges."""
    names = {*ANSWER_TABLES} - INDEPENDENT - {"connections"}
    rows = collected(capture.stream(names), names)
    return {name: Counter(map(repr, rows[name].to_pylist())) for name in names}


@pytest.mark.parametrize(
    "parts",
    [
        [Filter(broker=[f"127.0.0.1:{port}"]) for port in (9092, 9093, 19092)],
        [Filter(since="12.5"), Filter(until="12.5")],
        [Filter(where="net_ms > 3"), Filter(where="not coalesce(net_ms > 3, false)")],
        [Filter(where="topics is null"), Filter(topic=["*"]), Filter(where="len(topics) = 0")],
    ],
    ids=["broker", "time", "net_ms", "topic"],
)
def test_filters_that_divide_exchanges_divide_all_rows(parts: Sequence[Filter]) -> None:
    capture = open_capture([path_of(NAME)])
    counts = [row_counts(FilteredCapture(capture, part)) for part in parts]
    for name, rows in row_counts(capture).items():
        assert sum((part[name] for part in counts), Counter()) == rows, name

"""The captures of Apache Kafka agree with the broker's request logs.

Kafka writes the facts (tools/record/kafka/truth.py describes their fields). The log lacks requests
that the broker never finished, that it answered before authentication, or whose client had left
before the entry was written: `excused` accepts these only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import pytest

from dissector.capture import open_capture
from tests.captures.recorded import CAPTURES
from tools.record.kafka import truth

PARTIAL = "kafka-4-cut-"
WHOLE = sorted(
    path.name for path in CAPTURES.glob("kafka-*.pcap*.zst") if not path.name.startswith(PARTIAL)
)
# What captures hold that cannot be read: on purpose, four requests of APIs and versions that no
# broker knows (scenario kafka_4_errors); and responses in whose middle the connection was closed.
# Surplus bytes can be read, and are reported.
SURPLUS = {
    "kafka-3-librdkafka-0-11.pcap.zst": ("ApiVersions", 0, 4),
    "kafka-3-librdkafka-1-0.pcap.zst": ("ApiVersions", 0, 4),
    "kafka-4-list-topics.pcap.zst": ("Metadata", 13, 3),
}
"""Which requests of librdkafka have surplus bytes, and how many."""
STOPPED = ("0-9", "0-10", "0-11", "1-0", "1-1", "2-0", "2-3", "2-4", "2-8")
"""Old brokers: they stop, or their client does, while they send a response."""
PROBLEMS = {
    # A broker that answers Produce v1 with the response of v0; and stopped brokers, from here on.
    "kafka-0-8.pcap.zst": {"malformed", "cut_message"},
    **{f"kafka-{name}.pcap.zst": {"cut_message"} for name in STOPPED},
    "kafka-4-handshakes.pcap.zst": {"tls_alert", "tls_closed"},
    **{name: {"surplus_bytes"} for name in SURPLUS},
    "kafka-3-kafka-python.pcap.zst": {"cut_message"},
    "kafka-3-logins.pcap.zst": {"cut_message"},
    "kafka-4-errors.pcap.zst": {"unknown_version", "malformed", "surplus_bytes", "cut_message"},
    "kafka-4-followed.pcap.zst": {"cut_message"},
    "kafka-4-quorum.pcap.zst": {"cut_message"},
    "kafka-4-slow-link.pcap.zst": {"cut_message"},
    "kafka-4-steady-quota.pcap.zst": {"cut_message"},
    "kafka-4-unbalanced.pcap.zst": {"cut_message"},
    "kafka-4-unclean.pcap.zst": {"cut_message"},
}

ENVELOPE, API_VERSIONS, SASL = 58, 18, (17, 36, None)
"""SASL: SaslHandshake, SaslAuthenticate, and tokens without a header."""
# The broker takes its time in ns and prints µs; the capture's clock is the kernel's.
CLOCKS_MS = 0.1
WHOLE_MS = 1
"""Up to 0.10, the broker takes the difference of times in whole milliseconds."""

Row = dict[str, Any]
Key = tuple[str, str, int, int, int]


@dataclass(frozen=True)
class Case:
    """A capture as it was read, and the facts about it."""

    exchanges: list[Row]
    errors: dict[tuple[Any, ...], list[int]]
    problems: list[Row]
    facts: list[Row]

    def logged(self, source: str) -> list[Row]:
        return [fact for fact in self.facts if fact["source"] == source]

    @cached_property
    def pairs(self) -> list[tuple[Row, Row]]:
        """Each answered exchange with its fact; those of one key in order of time."""
        ours = grouped(self.exchanges, key_of_exchange)
        theirs = grouped(self.logged("broker"), key_of_fact)
        return [
            (exchange, fact)
            for key, facts in theirs.items()
            for exchange, fact in zip(ours.get(key, []), facts, strict=False)
            if exchange["status"] in ("answered", "no_reply_expected")
        ]


def began(row: Row) -> Any:
    """Time of the first captured packet of an exchange."""
    return row["request_time"] or row["response_time"]


def key_of_exchange(row: Row) -> Key:
    client, broker = (f"{row[f'{end}_ip']}:{row[f'{end}_port']}" for end in ("client", "broker"))
    return broker, client, row["api_key"], row["api_version"], row["correlation_id"]


def key_of_fact(row: Row) -> Key:
    return row["broker"], row["client"], row["api_key"], row["version"], row["correlation_id"]


def grouped(rows: list[Row], key: Any) -> dict[Any, list[Row]]:
    groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


@cache
def case(name: str) -> Case:
    """The capture of that name, read once."""
    keys = CAPTURES / f"{name.partition('.')[0]}.keys.log"
    tables = open_capture(CAPTURES / name, keylog=keys if keys.exists() else None).tables()
    exchanges = sorted(tables["exchanges"].to_pylist(), key=began)
    errors = defaultdict(list)
    for row in tables["errors"].to_pylist():
        key = row["connection_id"], row["correlation_id"], row["api"], row["time"]
        errors[key].append(row["error_code"])
    facts = truth.read(name.partition(".")[0])
    return Case(exchanges, errors, tables["problems"].to_pylist(), facts)


def excused(case: Case, missing: Counter[Key]) -> set[Key]:
    """Those of our exchanges that the broker could not log."""
    allowed: set[Key] = set()
    answered = [row for row in case.exchanges if row["status"] == "answered"]
    for exchanges in grouped(answered, lambda row: row["connection_id"]).values():
        keys = [key_of_exchange(row) for row in exchanges]
        secured = any(key[2] in SASL for key in keys)
        allowed.update(key for key in keys if secured and key[2] in (API_VERSIONS, *SASL))
        allowed.update(key for key in keys if key[2] == ENVELOPE)
        # A response is logged when all of it is sent: the last ones before one side goes are not.
        for key in reversed(keys):
            if key not in missing and key not in allowed:
                break
            allowed.add(key)
    return allowed


@pytest.mark.parametrize(
    "name",
    [
        *WHOLE,
        "kafka-4-cut-list-topics.pcap.zst",
        "kafka-4-cut-midway.pcap.zst",
        "kafka-4-cut-requests.pcap.zst",
        "kafka-4-cut-snaplen.pcap.zst",
    ],
)
def test_each_request_that_the_broker_logged_is_one_exchange(name: str) -> None:
    logged = Counter(key_of_fact(fact) for fact in case(name).logged("broker"))
    ours = Counter(key_of_exchange(row) for row in case(name).exchanges)

    assert logged
    assert logged - ours == Counter()


@pytest.mark.parametrize("name", WHOLE)
def test_each_exchange_is_a_request_that_the_broker_logged(name: str) -> None:
    logged = Counter(key_of_fact(fact) for fact in case(name).logged("broker"))
    ours = Counter(
        key_of_exchange(row) for row in case(name).exchanges if row["status"] == "answered"
    )
    missing = ours - logged

    assert set(missing) - excused(case(name), missing) == set()


@pytest.mark.parametrize("name", WHOLE)
def test_forwarded_requests_came_in_an_envelope(name: str) -> None:
    carried = Counter((row["broker"], row["client"]) for row in case(name).logged("envelope"))
    envelopes = Counter(
        key_of_exchange(row)[:2] for row in case(name).exchanges if row["api_key"] == ENVELOPE
    )

    assert carried - envelopes == Counter()


@pytest.mark.parametrize("name", WHOLE)
def test_columns_of_the_request(name: str) -> None:
    columns = (
        *("client_id", "acks", "max_wait_ms", "min_bytes", "max_bytes", "isolation_level"),
        *("client_rack", "group_id", "member_id", "transactional_id"),
    )
    for exchange, fact in case(name).pairs:
        for column in columns:
            if fact.get(column) not in (None, ""):
                assert exchange[column] == fact[column], (column, fact)


@pytest.mark.parametrize("name", WHOLE)
def test_errors_and_throttling(name: str) -> None:
    for exchange, fact in case(name).pairs:
        if exchange["status"] != "answered" or cut_off(exchange):
            continue
        if not fact.get("response_is_logged", True):
            continue
        codes = fact.get("errors", [])
        columns = ("connection_id", "correlation_id", "api", "response_time")
        listed = case(name).errors[tuple(exchange[column] for column in columns)]
        assert sorted(listed) == sorted(codes), fact
        assert exchange["error_count"] == len(codes), fact
        assert (exchange["error_code"] or None) == (codes[0] if codes else None), fact
        assert (exchange["throttle_time_ms"] or 0) == fact.get("throttle_time_ms", 0), fact


@pytest.mark.parametrize("name", WHOLE)
def test_bytes_of_records(name: str) -> None:
    for exchange, fact in case(name).pairs:
        if "record_bytes" in fact and not cut_off(exchange):
            assert exchange["record_bytes"] == fact["record_bytes"], fact


@pytest.mark.parametrize("name", WHOLE)
def test_the_broker_took_no_longer_than_its_client_waited(name: str) -> None:
    # From the last byte of the request to the first of the response: all but the sending.
    for exchange, fact in case(name).pairs:
        if exchange["status"] == "answered":
            inside = fact["total_ms"] - fact["send_ms"]
            rounding = WHOLE_MS if isinstance(fact["total_ms"], int) else 0
            assert inside <= exchange["latency_ms"] + CLOCKS_MS + rounding, fact


@pytest.mark.parametrize("name", WHOLE)
def test_no_problem_that_the_scenario_does_not_ask_for(name: str) -> None:
    kinds = {problem["kind"] for problem in case(name).problems}
    assert kinds <= PROBLEMS.get(name, set()), case(name).problems[:3]


def test_requests_alone_are_exchanges_without_an_answer() -> None:
    exchanges = case("kafka-4-cut-requests.pcap.zst").exchanges

    assert {row["status"] for row in exchanges} == {"unanswered"}


def test_responses_alone_are_exchanges_without_a_request() -> None:
    seen = case("kafka-4-cut-responses.pcap.zst")
    logged = Counter((key_of_fact(f)[:2], f["correlation_id"]) for f in seen.logged("broker"))
    ours = Counter((key_of_exchange(row)[:2], row["correlation_id"]) for row in seen.exchanges)

    assert {row["status"] for row in seen.exchanges} == {"request_missing"}
    assert logged == ours


@pytest.mark.parametrize("name", SURPLUS)
def test_surplus_bytes_cost_nothing(name: str) -> None:
    api, version, surplus = SURPLUS[name]
    longer = {
        (row["connection_id"], row["request_packet"]): row
        for row in case(name).exchanges
        if (row["api"], row["api_version"]) == (api, version)
    }
    problems = case(name).problems

    assert problems
    assert {problem["bytes"] for problem in problems} == {surplus}
    for problem in problems:
        exchange = longer[problem["connection_id"], problem["packet"]]
        assert exchange["status"] == "answered"
        assert problem["offset"] + surplus == exchange["request_bytes"] - 4
    assert "undecoded" not in {row["status"] for row in case(name).exchanges}


@pytest.mark.parametrize(
    "name", ["kafka-4-librdkafka.pcap.zst", "kafka-4-telemetry.pcap.zst", *SURPLUS]
)
def test_sizes_as_librdkafka_logged_them(name: str) -> None:
    for column in ("request_bytes", "response_bytes"):
        logged = Counter(
            (fact["client_id"], fact["version"], fact["correlation_id"], fact[column])
            for fact in case(name).logged("librdkafka")
            if column in fact
        )
        ours = Counter(
            (row["client_id"], row["api_version"], row["correlation_id"], row[column])
            for row in case(name).exchanges
        )

        assert logged
        assert logged - ours == Counter()


def cut_off(exchange: Row) -> bool:
    """Whether the connection ended in the middle of the response, before its error code."""
    return exchange["status"] == "answered" and exchange["error_code"] is None

"""The rule about compression on made rows: one finding for producers with the same codec."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import MS, START


def _batches(client_id: str, topic: str, codec: str, number: int = 50) -> list[dict[str, Any]]:
    """Batches of 10 kB, which hardly shrink."""
    return [
        {
            "connection_id": 0, "correlation_id": n, "time": START + n * MS,
            "request_time": START + n * MS, "api": "Produce", "client_id": client_id,
            "topic": topic, "partition": 0, "record_count": 10, "bytes": 10_000,
            "uncompressed_bytes": 10_100, "codec": codec, "batch_index": 0, "error_code": 0,
        }
        for n in range(number)
    ]  # fmt: skip


def _sentences(*batches: list[dict[str, Any]]) -> list[str]:
    rows = [row for each in batches for row in each]
    tables = made(batches=rows, decompressed_batches=rows)
    return [finding.sentence for finding in findings_of("compression", tables)]


def test_producers_with_the_same_codec_are_one_finding() -> None:
    assert _sentences(
        _batches("a", "t", "none"), _batches("b", "u", "none", 60), _batches("c", "t", "lz4"),
        _batches("d", "t", "gzip"), _batches("e", "t", "gzip"), _batches("few", "t", "none", 39),
    ) == [
        "2 clients (`b`, `a`) do not compress their batches to 2 topics (`u`, `t`)",
        "Client `c` compresses with lz4 without effect to topic `t`",
        "2 clients (`d`, `e`) compress with gzip without effect to topic `t`",
    ]  # fmt: skip


def test_the_evidence_is_that_of_the_most_bytes() -> None:
    rows = [*_batches("a", "t", "none"), *_batches("a", "u", "none", 60)]
    tables = made(batches=rows, decompressed_batches=rows)
    (finding,) = findings_of("compression", tables)
    assert finding.evidence.startswith("Most (client `a`, topic `u`): 60 batches with ")
    assert finding.numbers["bytes"] == 600_000
    assert finding.requests == 60  # a request may have batches for both topics


@pytest.mark.parametrize("client_id", [None, 'it\'s a "name"', "n" * 300])
@pytest.mark.parametrize(
    ("changed", "fires"),
    [
        ({}, True),
        ({"codec": "none"}, True),
        ({"codec": "lz4"}, False),
        ({"base_offset": 1}, False),
        ({"topic_id": "id-2"}, False),
        ({"topic": "u"}, False),
        ({"api": "Produce"}, False),
    ],
    ids=["gzip", "none", "the same", "other records", "created again", "another topic", "unread"],
)
def test_batches_that_the_broker_compresses_again(
    changed: dict[str, Any], fires: bool, client_id: str | None
) -> None:
    """41 batches of 10 kB, of ten records each."""
    produced = [
        row | {"base_offset": 10 * n, "last_offset": 10 * n + 9, "topic_id": "id-1", "magic": 2}
        | {"client_id": client_id, "uncompressed_bytes": 50_000}
        for n, row in enumerate(_batches("a", "t", "lz4", 41))
    ]  # fmt: skip
    fetched = [
        row | {"api": "Fetch", "client_id": "reader", "codec": "gzip", "topic_id": None} | changed
        for row in produced
    ]
    tables = made(batches=[*produced, *fetched], decompressed_batches=produced)
    findings = findings_of("compression", tables)
    assert len(findings) == fires
    for each in findings:
        codec = changed.get("codec", "gzip")
        assert each.sentence == (
            "Brokers compress the batches of topic `t` again: lz4 in Produce requests is "
            f"{codec} in Fetch responses"
        )
        assert each.numbers["batches"] == 41
        assert each.clients == ((client_id,) if client_id else ())
        assert each.setting == "compression.type=producer"

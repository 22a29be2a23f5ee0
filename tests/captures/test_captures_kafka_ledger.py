"""The table of versions in the ledger has what the brokers logged."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from tests.captures.recorded import CAPTURES
from tools.record.kafka import truth
from tools.record.kafka.coverage import TITLE

README = (CAPTURES / "README.md").read_text()
UNREADABLE = ("kafka-0-8.truth.jsonl.zst", 0, 1)
"""The broker answers Produce v1 with the response of v0."""


def seen() -> dict[int, dict[int, int]]:
    """From the README: how many captures have each version of each API."""
    table: dict[int, dict[int, int]] = defaultdict(dict)
    for row in re.finditer(
        r"^\| (\d+) \w+ \| [^|]* \| ([^|]*) \|$", README.partition(TITLE)[2], re.M
    ):
        for version, count in re.findall(r"(\d+) `[^`]+` (\d+)", row[2]):
            table[int(row[1])][int(version)] = int(count)
    return table


def test_the_table_of_versions_has_all_that_brokers_logged() -> None:
    logged = defaultdict[tuple[Any, ...], set[str]](set)
    for path in CAPTURES.glob("kafka-[0-4]-*.truth.jsonl.zst"):
        if not path.name.startswith(("kafka-4-cut-", "kafka-4-tls", "kafka-4-net-vxlan")):
            for fact in truth.read(path.name.partition(".")[0]):
                # acks=0 is logged and never answered; error 35 answers an unknown version.
                answered = fact.get("acks") != 0 and fact.get("errors") != [35]
                if fact["source"] == "broker" and answered:
                    logged[fact["api_key"], fact["version"]].add(path.name)
    name, *unreadable = UNREADABLE
    logged[tuple(unreadable)].remove(name)
    table = seen()

    assert len(logged) > 200
    for (api_key, version), names in logged.items():
        assert table[api_key].get(version, 0) >= len(names), (api_key, version, names)

"""The topology chart: merged clients, the largest links, and the note on the others."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.report.topology_chart import LINKS, topology_chart


def topology(*rows: dict[str, Any]) -> pd.DataFrame:
    base = {"groups": None, "client_id": "app", "requests": 1, "records": 1, "bytes": 10}
    return pd.DataFrame([base | row for row in rows]).astype({"records": "Int64"})


def drawn(rows: pd.DataFrame) -> tuple[str, list[dict[str, Any]]]:
    """The title, and one row per curve."""
    chart = topology_chart(rows)
    assert chart is not None
    spec = chart.to_dict()
    curves = next(rows for rows in spec["datasets"].values() if rows and "step" in rows[0])
    return spec["title"]["text"], [row for row in curves if not row["step"]]


def test_the_addresses_of_a_client_are_one_link() -> None:
    readers = [
        {"topic": "payments", "action": "consumes", "client_id": "reader", "client": f"10.0.{n}.1",
         "groups": "g", "bytes": 1000}
        for n in range(464)
    ]  # fmt: skip
    writers = [
        {"topic": "payments", "action": "produces", "client_id": "writer", "client": f"10.1.{n}.1"}
        for n in range(3)
    ]
    title, links = drawn(topology(*readers, *writers))
    assert title == ""
    assert [(link["client"], link["addresses"], link["bytes"]) for link in links] == [
        ("reader (g)", 464, 464_000),
        ("writer", 3, 30),
    ]


def test_both_sides_are_drawn_and_the_title_counts_missing_links() -> None:
    readers = [
        {"topic": "t", "action": "consumes", "client_id": f"reader-{n}", "client": "10.0.0.1",
         "bytes": 1000}
        for n in range(100)
    ]  # fmt: skip
    writer = {"topic": "t", "action": "produces", "client_id": "writer", "client": "10.0.0.2"}
    title, links = drawn(topology(*readers, writer))
    assert len(links) == LINKS
    assert "writer" in {link["client"] for link in links}
    share = 100 * ((LINKS - 1) * 1000 + 10) / 100_010
    assert title.startswith(f"Largest {LINKS} of 101 links. They carry {share:.1f} % of the bytes")


def test_clients_without_an_id_are_one_link() -> None:
    rows = [
        {"topic": "t", "action": "produces", "client_id": None, "client": f"10.0.0.{n}",
         "records": None}
        for n in range(5)
    ]  # fmt: skip
    _, (link,) = drawn(topology(*rows))
    assert (link["client"], link["addresses"], link["records"]) == ("(no client id)", 5, None)

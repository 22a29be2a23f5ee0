"""Trust: how much of a capture could be read, and what the other answers cannot know of it.

Each row is one way in which a capture falls short, with how often it did out of how many, so that
what is whole is told as well. A hole, or a packet cut by a snapshot length, takes messages from all
other answers; a flow of which one side is missing takes every latency; what is encrypted, or newer
than the definitions, is counted and no more.
"""

from __future__ import annotations

from typing import Final

import pandas as pd
import pyarrow as pa

from analysis.answers.common import Tables, shaped
from analysis.answers.unanswered import unanswered
from dissector.tables import TableColumn

COLUMNS: Final = (
    TableColumn("flaw", pa.string(), "in what way the capture falls short"),
    TableColumn("count", pa.int64(), "how often it does"),
    TableColumn("of", pa.int64(), "out of how many; null for problems of other kinds"),
    TableColumn("bytes", pa.int64(), "bytes that it concerns, where they are known", "bytes"),
    TableColumn("detail", pa.string(), "what is worst, or first, of it"),
)


def trust(tables: Tables) -> pd.DataFrame:
    """A row for each way to fall short, also where nothing does; then the kinds of problems.

    The columns are `COLUMNS`. Without connections there are no rows.
    """
    connections = tables["connections"]
    problems = _problems(tables["problems"])
    if not len(connections):
        return shaped(problems, COLUMNS)
    rows = [*_of_connections(connections), *_of_exchanges(tables), _of_batches(tables["batches"])]
    return shaped(pd.concat([pd.DataFrame(rows), problems], ignore_index=True), COLUMNS)


def _flaw(
    name: str, found: pd.Series[bool], detail: str | None = None, size: pd.Series[int] | None = None
) -> dict[str, object]:
    found = found.fillna(False).astype("bool")
    bytes = None if size is None else int(size[found].sum())
    return {
        "flaw": name, "count": int(found.sum()), "of": len(found), "bytes": bytes,
        "detail": detail if found.any() else None,
    }  # fmt: skip


def _of_connections(rows: pd.DataFrame) -> list[dict[str, object]]:
    size = rows["client_bytes"].fillna(0) + rows["broker_bytes"].fillna(0)
    lost = rows["client_lost_bytes"].fillna(0) + rows["broker_lost_bytes"].fillna(0)
    kafka = rows["protocol"] == "kafka"
    silent = (rows["client_packets"] == 0) | (rows["broker_packets"] == 0)
    unknown = (rows["protocol"] == "unknown") & (size > 0)
    ports = rows["broker_port"][unknown].value_counts().index
    worst = lost.sort_values(ascending=False, kind="stable").index
    return [
        _flaw(
            "connections of no known protocol", unknown,
            f"most with port {ports[0]}" if len(ports) else None, size,
        ),
        _flaw(
            "connections encrypted", rows["protocol"] == "tls", "a key log decrypts them", size
        ),
        _flaw("connections begun before the capture", (rows["opened"] == False)[kafka]),  # noqa: E712
        _flaw("connections with one side only", silent[kafka], "no latency is known of them"),
        _flaw(
            "connections with holes", (lost > 0)[kafka],
            f"most in connection {rows['connection_id'][worst[0]]}", lost[kafka],
        ),
    ]  # fmt: skip


def _of_exchanges(tables: Tables) -> list[dict[str, object]]:
    rows = tables["exchanges"]
    status = rows["status"]
    unread = rows[status == "undecoded"]
    what = unread["api"].fillna("an unknown API") + " " + unread["api_version"].astype("str")
    kinds = what.fillna("an unknown API").value_counts().index
    gone = unanswered(tables, by=["why"])
    gone = gone[gone["why"].isin(["loss", "one_sided", "capture_end"])]
    asked = int((status != "request_missing").sum())
    return [
        _flaw("exchanges not decoded", status == "undecoded", ", ".join(kinds[:3])),
        _flaw("responses without their request", status == "request_missing"),
        {
            "flaw": "requests whose answer may not be in the capture",
            "count": int(gone["requests"].sum()), "of": asked, "bytes": None,
            "detail": ", ".join(gone["why"]) or None,
        },
    ]  # fmt: skip


def _of_batches(rows: pd.DataFrame) -> dict[str, object]:
    bad = rows["crc_ok"] == False  # noqa: E712
    worst = rows[bad.fillna(False)]
    place = f"first in {worst['topic'].iloc[0]}-{worst['partition'].iloc[0]}" if len(worst) else ""
    return _flaw("batches with a wrong checksum", bad, place, rows["bytes"])


def _problems(rows: pd.DataFrame) -> pd.DataFrame:
    found = rows.groupby(["stage", "kind"], sort=False, dropna=False).agg(
        count=("kind", "size"), bytes=("bytes", "sum"), detail=("detail", "first")
    )
    found = found.reset_index().sort_values("count", ascending=False, kind="stable")
    flaw = "problem: " + found["stage"] + " " + found["kind"]
    return found.assign(flaw=flaw, of=None)

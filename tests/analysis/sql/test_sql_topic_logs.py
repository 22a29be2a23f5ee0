"""Logs of topics with the same name."""

from __future__ import annotations

from analysis.sql.context import ALL_PARTITIONS
from analysis.sql.query import connected, select
from analysis.sql.topic_logs import with_log
from tests.analysis.answering import made
from tests.analysis.made_rows import START


def test_a_filter_selects_rows_and_not_their_logs() -> None:
    """The Produce that begins the second log is of another client."""
    events = [("p", "Produce", 0), ("p", "Produce", 2), ("c", "Fetch", 0), ("p", "Produce", 0)]
    rows = [
        {
            "time": START + at, "client_id": client_id, "api": api, "offset": offset,
            "topic": "t", "partition": 0, "error_code": 0,
        }
        for at, (client_id, api, offset) in enumerate([*events, ("c", "Fetch", 0)])
    ]  # fmt: skip
    with connected(made(partitions=rows), ("partitions",)) as connection:
        connection.execute("create temp table complete as from partitions")
        connection.execute(f"create or replace temp view {ALL_PARTITIONS} as from complete")
        connection.execute("delete from partitions where client_id != 'c'")
        logs = select(connection, f"select log from {with_log('partitions')} order by time")
    assert logs["log"].to_pylist() == ["", "1"]

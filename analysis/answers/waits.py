"""How much of a latency was no work: the waiting that is by design, and the waiting for others.

Three things make a request wait that say nothing of how fast its broker is:

- A long poll. A Fetch waits up to max_wait_ms until there is something to return. One that comes
  back empty did nothing else; one with data waited until the first of its batches was written: that
  is its timestamp, as far as the clocks of the producers and of the capture agree.
- The rest of a group. JoinGroup and SyncGroup are answered when the others have come (`groups`
  tells of them); how much of that was work cannot be told.
- What was asked before. A broker serves the requests of a connection one after the other, so that
  one sent behind a long poll waits for its answer as well.

The latency that is left, net of these, is what the network and the broker took.
"""

from __future__ import annotations

from typing import Final

import pandas as pd

from analysis.answers.common import Tables, milliseconds

GROUP_WAITS: Final = ("JoinGroup", "SyncGroup")
"""Their latency ends when others act: net of wait, nothing is known of it."""


def waits(tables: Tables) -> pd.DataFrame:
    """Of each exchange, by its index, in ms, all float64; NaN where there is no latency.

    behind_ms  the broker was still at earlier requests of the connection
    poll_ms    then it waited, by design; the rest of the latency for `GROUP_WAITS`
    net_ms     what is left of the latency; NaN for `GROUP_WAITS`

    Needs `exchanges` and `batches`.
    """
    rows = tables["exchanges"]
    latency = rows["latency_ms"]
    behind = _behind(rows)
    own = latency - behind
    empty = rows["record_bytes"].fillna(0).eq(0) & rows["error_count"].fillna(0).eq(0)
    poll = own.where(empty, _until_written(tables) - behind)
    poll = poll.clip(lower=0, upper=own.clip(upper=rows["max_wait_ms"].astype("float64")))
    in_group = rows["api"].isin(GROUP_WAITS)
    poll = poll.where(rows["max_wait_ms"].notna(), 0.0).mask(in_group, own).where(latency.notna())
    return pd.DataFrame(
        {"behind_ms": behind, "poll_ms": poll, "net_ms": (own - poll).mask(in_group)}
    )


def _behind(rows: pd.DataFrame) -> pd.Series[float]:
    """From the end of a request to the last response to those that were sent before it."""
    replied = rows[["connection_id", "request_end_time", "response_time"]].dropna()
    replied = replied.sort_values("request_end_time", kind="stable")
    connection = replied["connection_id"]
    ended = replied["response_time"].groupby(connection).cummax()
    before = ended.groupby(connection).shift()
    late = before.clip(upper=replied["response_time"]) - replied["request_end_time"]
    return milliseconds(late).fillna(0).clip(lower=0).reindex(rows.index)


def _until_written(tables: Tables) -> pd.Series[float]:
    """From the end of each request to the timestamp of the first batch in its response, in ms."""
    rows, batches = tables["exchanges"], tables["batches"]
    fetched = batches[batches["api"].isin(("Fetch", "ShareFetch"))]
    first = fetched.groupby(["connection_id", "correlation_id"])["max_timestamp"].min()
    found = rows[["connection_id", "correlation_id"]].merge(
        first.rename("written"), how="left", left_on=["connection_id", "correlation_id"],
        right_index=True,
    )  # fmt: skip
    return milliseconds(found["written"].set_axis(rows.index) - rows["request_end_time"]).fillna(0)

"""Groups: when each rebalanced, for how long, who set it off, and why.

A rebalance is a span: from its first sign to the moment when the last member has its new part. The
coordinator numbers them, and every member learns the number, so that it tells what belongs
together, whichever connection it came by:

- A classic group has a *generation*. Somebody joins, leaves or falls silent; the members learn of
  it by REBALANCE_IN_PROGRESS, all join again (JoinGroup), and get their assignment (SyncGroup).
- Consumer (KIP-848), share (KIP-932) and streams groups (KIP-1071) have a group epoch. Members
  come to it one by one, with their heartbeats, and the others go on meanwhile. A coordinator may
  wait before it assigns anew: who joins is then given the epoch that is there already, and leads to
  the next one.

What the coordinator notices by itself, such as a member's silence, is not on the wire: such a span
begins when the first member is told. Groups that nobody is left in do not rebalance.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from analysis.sql.expressions import shaped
from analysis.sql.query import Tables, asking
from dissector.tables import TIME, TableColumn

if TYPE_CHECKING:
    import pandas as pd

_TEXT: Final = pa.string()

COLUMNS: Final = (
    TableColumn("group_id", _TEXT, "the group"),
    TableColumn("group_type", _TEXT, "classic, consumer, share or streams"),
    TableColumn("start_time", TIME, "first sign of the rebalance"),
    TableColumn("end_time", TIME, "when the last member had its part, as far as it came"),
    TableColumn("duration_ms", pa.float64(), "from the one to the other", "ms"),
    TableColumn(
        "trigger",
        _TEXT,
        "what set it off: joined, rejoined (a member that was there), left, timed out (a member "
        "that is not heard of again), changed (topics, subscriptions or assignments), unknown",
    ),
    TableColumn("trigger_client_id", _TEXT, "client that set it off"),
    TableColumn("trigger_member_id", _TEXT, "its member id"),
    TableColumn("reason", _TEXT, "what that client says why (KIP-800)"),
    TableColumn("generation", pa.int64(), "generation, or epoch, that it led to; null: none yet"),
    TableColumn("member_count", pa.int64(), "members in it"),
    TableColumn("last_client_id", _TEXT, "client for which the others waited: it came last"),
    TableColumn("completed", pa.bool_(), "whether every member that was seen in it has its part"),
)

_LEAVES: Final = (-1, -2)
"""Member epochs that say good-bye; -2: a static member that comes back."""

Span: TypeAlias = dict[str, Any]
"""A row of the answer, without what all rows of a group have."""


class Step(NamedTuple):
    """A row of `memberships`, as far as it matters; times in ns, None is missing."""

    api: str
    time: int
    response_time: int | None
    client_id: str | None
    member_id: str | None
    generation: int | None
    request_generation: int | None
    member_count: int | None
    reason: str | None
    error: str | None
    group_instance_id: str | None

    @property
    def end(self) -> int:
        """When it was answered; of a step that was."""
        assert self.response_time is not None
        return self.response_time


def groups(tables: Tables) -> pd.DataFrame:
    """The rebalances of all groups, in order of time; columns: `COLUMNS`. Needs memberships."""
    import pandas as pd

    with asking(tables, ("memberships",)) as ask:
        rows, last = ask(_STEPS), ask(_HEARD)
    heard = dict(zip(last["member_id"], last["time"], strict=True))
    found: list[Span] = []
    for key, mine in rows.groupby(["group_id", "group_type"], sort=False):
        group_id, group_type = key
        steps = _steps(mine)
        spans = _classic(steps) if group_type == "classic" else _by_epoch(steps, heard)
        found += [{"group_id": group_id, "group_type": group_type, **span} for span in spans]
    table = pd.DataFrame(found, columns=[column.name for column in COLUMNS])
    for name in ("start_time", "end_time"):  # as whole numbers: a float has no room for these ns
        times = pd.array([span.get(name) for span in found], "Int64")
        table[name] = pd.to_datetime(pd.Series(times), utc=True)
    table["duration_ms"] = (table["end_time"] - table["start_time"]).dt.total_seconds() * 1000
    return shaped(table.sort_values("start_time", kind="stable"), COLUMNS)


_STEPS: Final = """
  with told as (
    select *, group_type = 'classic' as classic, coalesce(error_code, 0) != 0 as failed,
      coalesce(generation != request_generation, true) or coalesce(request_generation <= 0, false)
        as moved
    from memberships where group_id is not null)
  select * replace (epoch_ns(time) as time, epoch_ns(response_time) as response_time) from told
  where failed or case when classic then api != 'Heartbeat' else moved end
  order by told.time, nth"""
"""What members did, but for the heartbeats that tell nothing new: they may be very many."""

_HEARD: Final = """
  select coalesce(member_id, '') as member_id, max(epoch_ns(time)) as time
  from memberships where group_id is not null group by all"""
"""When each member was heard last."""


def _steps(rows: pd.DataFrame) -> list[Step]:
    plain = rows[list(Step._fields)].astype("object")
    plain = plain.where(plain.notna(), None)
    return [Step(*row) for row in plain.itertuples(index=False, name=None)]


def _between(steps: list[Step], times: list[int], since: int, until: int) -> list[Step]:
    """The steps whose time, in order, is after `since` and not after `until`."""
    return steps[bisect_right(times, since) : bisect_right(times, until)]


def _classic(steps: list[Step]) -> Iterator[Span]:
    """The rebalances of one classic group."""
    good = [step for step in steps if step.error == "NONE"]
    joins = [step for step in good if step.api == "JoinGroup" and step.generation is not None]
    leaves = [step for step in good if step.api == "LeaveGroup"]
    left_at = [step.time for step in leaves]
    told = [step for step in steps if step.error == "REBALANCE_IN_PROGRESS"]
    told.sort(key=lambda step: step.end)
    told_at = [step.end for step in told]
    syncs: dict[int | None, list[Step]] = defaultdict(list)
    for step in good:
        if step.api == "SyncGroup":
            syncs[step.request_generation].append(step)
    before: list[Step] = []
    since = 0
    joins.sort(key=lambda step: step.end)
    for generation, run in groupby(joins, key=lambda step: step.generation):
        joined = list(run)
        got = [step for step in syncs[generation] if step.time >= joined[0].time]
        if got:  # a static member that comes back later is given the same generation
            synced = min(step.end for step in got)
            joined = [step for step in joined if step.time <= synced]
        if not joined:
            continue
        members = {step.member_id for step in joined}
        parts: dict[str | None, int] = {}
        for step in got:
            parts.setdefault(step.member_id, step.end)
        until = joined[-1].end
        left = _between(leaves, left_at, since, until)
        cause = _cause_of_join(before, joined, left, _between(told, told_at, since, until))
        yield {
            **cause,
            "end_time": max([until, *(parts[each] for each in members & parts.keys())]),
            "generation": generation,
            "member_count": max((step.member_count or 0 for step in joined), default=0)
            or len(members),
            "last_client_id": max(joined, key=lambda step: step.time).client_id,
            "completed": members <= parts.keys(),
        }
        before, since = joined, until
    yield from _unfinished(steps, since)


def _cause_of_join(
    before: list[Step], joined: list[Step], left: list[Step], signs: list[Step]
) -> Span:
    """What set a classic group's rebalance off: the first thing that nobody was told to do.

    `before`: the joins that led to the generation before; `joined`: those that led to this one;
    `left`: who left between them; `signs`: who was told meanwhile that the group rebalances.
    """
    told = {step.member_id: step.end for step in reversed(signs)}
    known = {step.member_id for step in before}
    causes = [
        (step, "rejoined" if step.member_id in known else "joined")
        for step in joined
        if not told.get(step.member_id, step.time + 1) <= step.time
    ]
    causes += [(step, "left") for step in left]
    first = min(causes, key=lambda cause: cause[0].time, default=None)
    if first and not (signs and first[0].time > signs[0].end):
        return _cause(*first)
    start = signs[0].end if signs else min(step.time for step in joined)
    heard = {step.member_id for step in (*joined, *left)}
    for step in before:
        if step.member_id not in heard:
            return _cause(step, "timed out") | {"start_time": start, "reason": None}
    return {"start_time": start, "trigger": "unknown"}


def _cause(step: Step, trigger: str) -> Span:
    return {
        "start_time": step.time,
        "trigger": trigger,
        "trigger_client_id": step.client_id,
        "trigger_member_id": step.member_id,
        "reason": step.reason,
    }


def _unfinished(steps: list[Step], since: int) -> Iterator[Span]:
    """Joins that are still waiting for their answer when the capture ends."""
    waiting = [
        step
        for step in steps
        if step.api == "JoinGroup" and step.response_time is None and step.time > since
    ]
    if waiting:
        yield {
            **_cause(waiting[0], "unknown"),
            "member_count": len({step.member_id for step in waiting}),
            "completed": False,
        }


def _by_epoch(steps: list[Step], heard: Mapping[str, int]) -> Iterator[Span]:
    """The rebalances of one group whose members have epochs; `heard`: when each was heard last."""
    good = [step for step in steps if step.error == "NONE"]
    leaves = [step for step in good if step.request_generation in _LEAVES]
    left_at = [step.time for step in leaves]
    reached: dict[int, dict[str | None, Step]] = defaultdict(dict)
    for step in sorted(good, key=lambda step: step.end):
        epoch = step.generation
        if epoch is not None and epoch > 0 and epoch != step.request_generation:
            reached[epoch].setdefault(step.member_id, step)
    early = _before_their_epoch(reached)
    present: dict[str | None, Step] = {}
    since = 0
    for epoch, mine in sorted(reached.items()):
        came = [*mine.values()]
        first, last = came[0], came[-1]
        left = _between(leaves, left_at, since, first.end)
        silent = [step for step in present.values() if heard[step.member_id or ""] < first.time]
        cause = _cause_of_epoch(came, left, early[epoch], present, silent)
        for step in (*left, *silent):
            present.pop(step.member_id, None)
        present |= mine
        yield {
            **cause,
            "end_time": last.end,
            "generation": epoch,
            "member_count": len(present),
            "last_client_id": last.client_id,
            "completed": present.keys() <= mine.keys(),
        }
        since = first.end


def _before_their_epoch(reached: Mapping[int, dict[str | None, Step]]) -> dict[int, list[Step]]:
    """Joins, by the epoch that they led to, that were answered with the one before.

    There they are taken out of `reached`. A static member (KIP-345) may come back to its part,
    which leads to nothing.
    """
    early: dict[int, list[Step]] = defaultdict(list)
    for epoch, following in pairwise(sorted(reached)):
        mine = [*reached[epoch].values()]
        for step in mine:
            if step.request_generation != 0 or step.member_id not in reached[following]:
                continue
            others = (other for other in mine if other is not step)
            late = any(
                other.end < step.time or (other.request_generation == 0 and other.time < step.time)
                for other in others
            )
            if late and step.group_instance_id is None:
                early[following].append(reached[epoch].pop(step.member_id))
    return early


def _cause_of_epoch(
    mine: list[Step], left: list[Step], early: list[Step], present: Mapping[str | None, Step],
    silent: list[Step],
) -> Span:  # fmt: skip
    """What had a coordinator make a new epoch, which `mine` came to.

    `left`: who left since the epoch before; `early`: who joined, and was given that one. `present`:
    who had come to it; `silent`: those of them who were not heard of any more.
    """
    causes = [
        (step, "rejoined" if step.member_id in present else "joined")
        for step in mine
        if step.request_generation == 0
    ]
    causes += [(step, "joined") for step in early] + [(step, "left") for step in left]
    first = min(causes, key=lambda cause: cause[0].time, default=None)
    if first and first[0].time <= mine[0].end:
        return _cause(*first)
    start = {"start_time": mine[0].time}
    if silent:
        return _cause(silent[0], "timed out") | start | {"reason": None}
    return start | {"trigger": "changed" if present else "unknown"}

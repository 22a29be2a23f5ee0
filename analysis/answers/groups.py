"""Groups: when each group rebalanced, for how long, which client triggered it, and why.

    $ kafka-dissector groups captures/kafka-4-group-eager.pcap.zst

    $ kafka-dissector groups captures/kafka-4-followed.pcap.zst --show cost

**How to read it.** A row is a rebalance: its trigger, the client that caused it, and its reason.
With `--show cost`, `unread_ms` is the longest time for which a partition was not read, and
`lag_growth` is the number of records that arrived during such times.

**What to do.** For timed out, find out whether the client was killed or too slow
(max.poll.interval.ms). With a shorter session.timeout.ms, the coordinator notices dead members
sooner. If clients restart often, use static members (KIP-345). Cooperative (KIP-429) and newer
groups interrupt only the partitions that move. `last_client_id` is the member for which the others
waited.

**How it is computed.** A rebalance lasts from its first sign until the last member has its new
assignment. The coordinator numbers rebalances and sends the number to every member, so it
identifies the requests of one rebalance on all connections:

- A classic group has a *generation*. When a member joins, leaves or times out, the others receive
REBALANCE_IN_PROGRESS; all of them rejoin (JoinGroup) and get their assignment (SyncGroup). A first
JoinGroup that only gets a member id (KIP-394) is not a sign of a rebalance.
- Consumer (KIP-848), share (KIP-932) and streams groups (KIP-1071) have a group epoch. Members
  reach it one by one with their heartbeats, and continue to work meanwhile. A coordinator may delay
  a new assignment: a joining member then receives the current epoch, and causes the next one.

The time without reads may begin before the rebalance, when a member dies. It ends with the first
Fetch of the new owner, which first requests the committed offset. `analysis.sql.interruptions`
defines it.

**Limitations.** Events inside the coordinator, for example the timeout of a member, are not on the
wire. In this case, the rebalance starts when the first member is notified. Groups without members
do not rebalance. Members whose connections are not in the capture do not count; the trigger of a
rebalance that they cause is `unknown`, or, in groups with epochs, `changed`. In groups with epochs,
a member may reach an epoch before others have given up its partitions. It gets them later, at the
latest with its next heartbeats; this time is not part of the duration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.answers import ArrowTable, Option, Tables, Variant, answer, select
from analysis.columns import Column, resolved
from analysis.kafka.rebalances import Step, of_classic_group, of_group_with_epochs

if TYPE_CHECKING:
    from analysis.sql.query import Row

_COLUMNS: Final = (
    Column("group_id", "string", "id of the group"),
    Column("group_type", "string", "classic, consumer, share or streams"),
    Column("start_time", "time", "first sign of the rebalance"),
    Column("end_time", "time", "time when the last member got its assignment, if captured"),
    Column("duration_ms", "double", "time from start to end", "ms"),
    Column(
        "trigger",
        "string",
        "cause: joined, rejoined (by an existing member), left, timed out (no later request of "
        "the member), changed (topics, subscriptions or assignments), or unknown",
    ),
    Column("trigger_client_id", "string", "client that caused the rebalance"),
    Column("trigger_member_id", "string", "member id of that client"),
    Column("reason", "string", "reason that the client gave (KIP-800)"),
    Column("generation", "int64", "new generation or epoch; null if there is none yet"),
    Column("member_count", "int64", "members of the new generation"),
    Column("last_client_id", "string", "client that joined last, and for which the others waited"),
    Column("completed", "bool", "whether every captured member got its assignment"),
)

_WITH_COST: Final = (
    "group_id", "start_time", "duration_ms", "trigger", "trigger_client_id", "generation",
    "member_count",
)  # fmt: skip
COST_COLUMNS: Final = (
    *(column for column in _COLUMNS if column.name in _WITH_COST),
    Column("partitions", "int64", "partitions whose reads were interrupted"),
    Column("unread_ms", "double", "longest interruption, which may exceed the rebalance", "ms"),
    Column("lag_growth", "int64", "records that arrived in these partitions meanwhile"),
)


@answer(
    question="When did each group rebalance, for how long, what triggered it, and why?",
    place=7,
    tables=("memberships",),
    options=(Option("show", "Show rebalances, or their cost"),),
    rows="rebalances",
    columns=_COLUMNS,
    variants=(Variant("show", "cost", COST_COLUMNS, ("partitions", "exchanges")),),
    essential=(
        "group_id trigger unread_ms lag_growth reason start_time duration_ms trigger_client_id"
    ),
    useful="partitions member_count generation completed",
)
def groups(tables: Tables, *, show: str = "rebalances") -> ArrowTable:
    """The rebalances of all groups, in order of time."""
    from analysis.sql.query import table_of

    rebalances = _rebalances(tables)
    if show == "cost":
        return table_of(_costs(tables, rebalances), resolved(COST_COLUMNS))
    return table_of(rebalances, resolved(_COLUMNS))


def _costs(tables: Tables, rebalances: list[Row]) -> list[Row]:
    """The rebalances with the columns of their cost."""
    from analysis.sql.interruptions import interruptions
    from analysis.sql.query import row_dicts

    spans = [
        (number, each["group_id"], each["start_time"], each["end_time"])
        for number, each in enumerate(rebalances)
        if each["start_time"] is not None and each["end_time"] is not None
    ]
    rows = row_dicts(select(tables, interruptions(spans)))
    costs = {row["number"]: row for row in rows}
    return [
        each | {"partitions": 0} | costs.get(number, {}) for number, each in enumerate(rebalances)
    ]


def _rebalances(tables: Tables) -> list[Row]:
    from analysis.sql.query import row_dicts

    last_seen = {row["member_id"]: row["time"] for row in row_dicts(select(tables, _LAST_SEEN))}
    groups: dict[tuple[str, str], list[Step]] = {}
    for row in row_dicts(select(tables, _STEPS)):
        step = Step(**{name: row[name] for name in Step._fields})
        groups.setdefault((row["group_id"], row["group_type"]), []).append(step)
    rebalances = []
    for (group_id, group_type), steps in groups.items():
        spans = (
            of_classic_group(steps)
            if group_type == "classic"
            else of_group_with_epochs(steps, last_seen)
        )
        for span in spans:
            start, end = span.get("start_time"), span.get("end_time")
            rebalances.append({
                "group_id": group_id, "group_type": group_type, **span,
                "start_time": start, "end_time": end,
                "duration_ms": None if start is None or end is None else (end - start) / 1e6,
            })  # fmt: skip
    return sorted(rebalances, key=lambda row: (row["start_time"] is None, row["start_time"] or 0))


_STEPS: Final = """
  with candidates as (
    select *, group_type = 'classic' as classic, coalesce(error_code, 0) != 0 as failed,
      coalesce(generation != request_generation, true) or coalesce(request_generation <= 0, false)
        as moved
    from memberships where group_id is not null)
  select * replace (epoch_ns(time) as time, epoch_ns(response_time) as response_time)
  from candidates
  where failed or case when classic then api != 'Heartbeat' else moved end
  order by candidates.time, nth"""
"""Requests of members, without the many heartbeats that change nothing."""

_LAST_SEEN: Final = """
  select coalesce(member_id, '') as member_id, max(epoch_ns(time)) as time
  from memberships where group_id is not null group by all"""
"""Time of the last request of each member."""

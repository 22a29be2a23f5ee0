"""Rebalances: spans of time, made from the requests of the members of one group.

The answer `groups` defines them. Rows are plain tuples of integers and texts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

_LEAVES: Final = (-1, -2)
"""Member epochs of members that leave; -2: a static member that will return."""

_LONGEST_RESPONSE: Final = 10**9
"""In ns: a response that takes longer waited for other members."""

_LONGEST_SESSION: Final = 60 * 10**9
"""In ns: the default of group.consumer.max.session.timeout.ms. Until its session ends, a member
without requests is still a member."""

Span: TypeAlias = dict[str, Any]
"""A row of the answer, without the columns of the group."""


class Step(NamedTuple):
    """A row of `memberships`; times in ns, None if missing."""

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
        """Time of the response; only for steps with a response."""
        assert self.response_time is not None
        return self.response_time


def _between(steps: list[Step], times: list[int], since: int, until: int) -> list[Step]:
    """The steps after `since` and not after `until`; `times` are their times, in order."""
    return steps[bisect_right(times, since) : bisect_right(times, until)]


def _in_order(left: list[Step], joined: list[Step]) -> tuple[list[Step], list[Step]]:
    """The members that left before a generation, and those that leave it.

    The coordinator reads the requests of a connection in order: a member that leaves while it waits
    for the response to its join does so after it.
    """
    joined_at = {step.member_id: step.time for step in joined}
    after = [step for step in left if step.time > joined_at.get(step.member_id, step.time)]
    return [step for step in left if step not in after], after


def _without_departed(
    before: list[Step], left: list[Step], joined: list[Step], *, has_others: bool
) -> tuple[list[Step], list[Step]]:
    """`before` and `left` without the members that had all left before those in `joined` came: a
    group without members does not rebalance.

    `has_others`: whether others are known to have stayed, if `before` is empty, because the capture
    does not contain their joins.
    """
    first = min(step.time for step in joined)
    gone = {step.member_id for step in left if step.time < first}
    have_left = {step.member_id for step in before} <= gone if before else not has_others
    if not have_left:
        return before, left
    return [], [step for step in left if step.time >= first]


def of_classic_group(steps: list[Step]) -> Iterator[Span]:
    """The rebalances of one classic group."""
    good = [step for step in steps if step.error == "NONE"]
    joins = [step for step in good if step.api == "JoinGroup" and step.generation is not None]
    leaves = [step for step in good if step.api == "LeaveGroup"]
    left_at = [step.time for step in leaves]
    signs = [step for step in steps if step.error == "REBALANCE_IN_PROGRESS"]
    signs.sort(key=lambda step: step.end)
    signs_at = [step.end for step in signs]
    syncs: dict[int | None, list[Step]] = defaultdict(list)
    for step in good:
        if step.api == "SyncGroup":
            syncs[step.request_generation].append(step)
    before: list[Step] = []
    queued: list[Step] = []
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
        left, queued = _in_order([*queued, *_between(leaves, left_at, since, until)], joined)
        notices = _between(signs, signs_at, since, until)
        before, left = _without_departed(before, left, joined, has_others=bool(notices))
        cause = _cause_of_join(before, joined, left, notices)
        yield {
            **cause,
            "start_time": max(cause["start_time"], since),
            "end_time": max([until, *(parts[member] for member in members & parts.keys())]),
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
    """The trigger of a rebalance of a classic group: the first step that was no reaction to it.

    `before`: joins of the previous generation; `joined`: joins of this generation; `left`: members
    that left in between; `signs`: steps in between with the response REBALANCE_IN_PROGRESS.
    """
    notified = {step.member_id: step.end for step in reversed(signs)}
    known = {step.member_id for step in before}
    causes = [
        (step, "rejoined" if step.member_id in known else "joined")
        for step in joined
        if not notified.get(step.member_id, step.time + 1) <= step.time
    ]
    causes += [(step, "left") for step in left]
    first = min(causes, key=lambda cause: cause[0].time, default=None)
    if first and not (signs and first[0].time > signs[0].end):
        return _cause(*first)
    start = signs[0].end if signs else min(step.time for step in joined)
    active = {step.member_id for step in (*joined, *left)}
    for step in before:
        if step.member_id not in active:
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
    """Joins without a response when the capture ends, or until the coordinator stops."""
    waiting = [
        step
        for step in steps
        if step.api == "JoinGroup" and step.time > since
        and (step.response_time is None or _waited_in_vain(step))
    ]  # fmt: skip
    if waiting:
        ends = [step.response_time for step in waiting]
        yield {
            **_cause(waiting[0], "unknown"),
            "end_time": None if None in ends else max(step.end for step in waiting),
            "member_count": len({step.member_id for step in waiting}),
            "completed": False,
        }


def _waited_in_vain(step: Step) -> bool:
    """Whether a coordinator that stops ended a wait; one that does not know the group responds at
    once."""
    return step.error == "NOT_COORDINATOR" and step.end - step.time >= _LONGEST_RESPONSE


def of_group_with_epochs(steps: list[Step], last_seen: Mapping[str, int]) -> Iterator[Span]:
    """The rebalances of one group whose members have epochs; `last_seen`: times by member id."""
    good = [step for step in steps if step.error == "NONE"]
    leaves = [step for step in good if step.request_generation in _LEAVES]
    left_at = [step.time for step in leaves]
    reached = _first_steps(good)
    early = _before_their_epoch(reached)
    present: dict[str | None, Step] = {}
    since = 0
    for epoch, mine in sorted(reached.items()):
        came = [*mine.values()]
        first, last = came[0], came[-1]
        left = _between(leaves, left_at, since, first.end)
        silent = [step for step in present.values() if last_seen[step.member_id or ""] < first.time]
        expired = [
            step
            for step in silent
            if first.time - last_seen[step.member_id or ""] > _LONGEST_SESSION
        ]
        newcomers = [step for step in (*came, *early[epoch]) if step.request_generation == 0]
        if newcomers:
            has_others = any(step.request_generation for step in came)
            before, left = _without_departed(
                [*present.values()], left, newcomers, has_others=has_others
            )
            present = present if before else {}
        cause = _cause_of_epoch(came, left, early[epoch], present, silent)
        if cause["trigger"] == "timed out":
            expired = silent
        for step in (*left, *expired):
            present.pop(step.member_id, None)
        present |= mine
        yield {
            **cause,
            "end_time": last.end,
            "generation": epoch,
            "member_count": len(present),
            "last_client_id": last.client_id,
            "completed": present.keys() - {step.member_id for step in silent} <= mine.keys(),
        }
        since = first.end


def _first_steps(good: list[Step]) -> dict[int, dict[str | None, Step]]:
    """By epoch and member: the first step whose response has this epoch, and whose request not."""
    reached: dict[int, dict[str | None, Step]] = defaultdict(dict)
    for step in sorted(good, key=lambda step: step.end):
        epoch = step.generation
        if epoch is not None and epoch > 0 and epoch != step.request_generation:
            reached[epoch].setdefault(step.member_id, step)
    return reached


def _before_their_epoch(reached: Mapping[int, dict[str | None, Step]]) -> dict[int, list[Step]]:
    """Joins whose response has the epoch before the one that they caused, by the latter.

    They are removed from `reached`. A static member (KIP-345) may return to its assignment, which
    causes no epoch.
    """
    early: dict[int, list[Step]] = defaultdict(list)
    for epoch, following in pairwise(sorted(reached)):
        mine = [*reached[epoch].values()]
        for step in mine:
            if step.request_generation != 0 or step.member_id not in reached[following]:
                continue
            late = any(
                peer.end < step.time or (peer.request_generation == 0 and peer.time < step.time)
                for peer in mine
                if peer is not step
            )
            if late and step.group_instance_id is None:
                early[following].append(reached[epoch].pop(step.member_id))
    return early


def _cause_of_epoch(
    mine: list[Step], left: list[Step], early: list[Step], present: Mapping[str | None, Step],
    silent: list[Step],
) -> Span:  # fmt: skip
    """The trigger of a new epoch, which the members in `mine` reached.

    `left`: members that left since the previous epoch; `early`: members that joined and got the
    previous epoch; `present`: members that had reached it; `silent`: those without later requests.
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

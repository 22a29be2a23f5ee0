"""Compare two captures: from tables to changes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from analysis.answers import ArrowTable, Tables
from analysis.answers.skew import HOT
from analysis.columns import Column, resolved
from analysis.comparison.bootstrap import BLOCKS, interval, logarithms, tail_of
from analysis.comparison.measures import MEASURES, NAMES, PARTITION, Measure
from analysis.comparison.profile import (
    NO_LATENCIES,
    SLICES,
    SUMS,
    Group,
    Key,
    Profile,
    profile,
)
from analysis.frames import frame
from analysis.sql.expressions import By, column_names, is_time
from analysis.sql.query import connected, table_of
from dissector.arguments import boolean, number
from dissector.arrays import value

if TYPE_CHECKING:
    import pandas as pd

COMPARED_TABLES: Final = ("exchanges", "errors", "batches", "connections")
"""Tables that a comparison needs."""

BY: Final = ("client_id", "api")
LEAST_PERCENT: Final = 10.0
CONFIDENCE: Final = 0.95
_LARGEST_CONFIDENCE: Final = 0.9999
"""Nothing is certain: the interval of 1 is infinite."""
LEAST_REQUESTS: Final = 50
"""Requests of a group before or after; fewer have no stable rate or quantile."""
LEAST_PRESENT: Final = 10
"""Requests of a client, group or topic that came or went, as many as the other capture would have
in its time."""
LEAST_SLICES: Final = 8
"""Slices from the first request of a group to the last; a shorter burst has no rate. With fewer
than `BLOCKS`, the variance of a quantile is unknown, too."""
LEAST_EVENTS: Final = 5
"""Errors, before or after."""

COLUMNS: Final = (
    Column("measure", "string", "what changed: a measure, or client, group, topic, software, ..."),
    Column("change", "string", "changed, new (0 or absent before), gone, or none"),
    Column("before", "double", "value before"),
    Column("after", "double", "value after"),
    Column("unit", "string", "unit of before and after; null for software and api_version"),
    Column("change_percent", "double", "change in percent of before; null if before is 0", "%"),
    Column("low_percent", "double", "lower end of its confidence interval", "%"),
    Column("high_percent", "double", "upper end of its confidence interval", "%"),
    Column("is_worse", "bool", "whether the change is for the worse; null if it is neither"),
    Column("detail", "string", "names and versions before and after"),
)
"""Columns of the changes, after those that requests are grouped by."""


@value
class Comparison:
    """Changes between two captures."""

    changes: ArrowTable
    before: Profile
    after: Profile
    measured: int
    """Measures of groups that were compared, changed or not."""


def compare(
    before: Tables,
    after: Tables,
    *,
    by: By = BY,
    least_percent: float = LEAST_PERCENT,
    confidence: float = CONFIDENCE,
    unchanged: bool = False,
) -> pd.DataFrame:
    """What changed between two captures, most important first: causes before effects.

    `before`, `after`: captures, or their tables exchanges, errors, batches and connections. `by`:
    columns to group requests by. `least_percent`: smallest change that matters.
    `confidence`: probability, less than 1, that none of the changes is noise. `unchanged`: also
    list measures without a change.

    Raises DissectorError if a table is missing, for a wrong value, or if `by` names an unknown
    column.
    """
    by = column_names(by)
    least_percent = number("least_percent", least_percent, 0)
    confidence = number("confidence", confidence, 0, _LARGEST_CONFIDENCE)
    unchanged = boolean("unchanged", unchanged)
    profiles = []
    for tables in (before, after):
        with connected(tables, COMPARED_TABLES) as connection:
            profiles.append(profile(connection, by))
    comparison = compared(
        *profiles, by=by, least_percent=least_percent, confidence=confidence, unchanged=unchanged
    )
    return frame(comparison.changes)


def compared(
    before: Profile, after: Profile, *, by: By, least_percent: float, confidence: float,
    unchanged: bool,
) -> Comparison:  # fmt: skip
    """The comparison of two profiles; the other parameters are those of `compare`."""
    names = column_names(by)
    measured = list(_measured(before, after, names, least_percent, confidence))
    present = _present(before, after, confidence)
    rows = [*measured, *_texts(before, after, names), *present]
    if not unchanged:
        rows = [row for row in rows if row["change"] != "none"]
    rows.sort(key=lambda row: (NAMES.index(row["measure"]), -row["size"]))
    # Rows of all kinds share a column to group by. So its values are texts, or else times.
    by_columns = [Column(name, "time" if is_time(name) else "string") for name in names]
    changes = table_of(rows, resolved([*by_columns, *COLUMNS]))
    return Comparison(changes, before, after, len(measured))


def _measured(
    before: Profile, after: Profile, names: tuple[str, ...], least_percent: float, confidence: float
) -> Iterator[dict[str, Any]]:
    """A row for each measure of each group with enough requests."""
    chosen = [
        (_named(names, key), measure, groups)
        for key, measure, groups in _comparable(before, after)
        if not _is_of_one_side(dict(zip(names, key, strict=True)), before, after)
    ]
    chosen += _hot_partitions(before, after)
    tail = tail_of(confidence, len(chosen))
    for named, measure, groups in chosen:
        old, new = (_value(group, measure) for group in groups)
        old_log, new_log = (_log_of(group, measure) for group in groups)
        samples = [logarithms(group, measure) for group in groups]
        center = new_log - old_log
        low, high = interval(center, (samples[0], samples[1]), tail)
        is_change = (
            (low > 0 or high < 0)
            and abs(new - old) >= measure.least
            and abs(math.expm1(center)) * 100 >= least_percent
        )
        yield named | {
            "measure": measure.name,
            "change": _change(old, new) if is_change else "none",
            "before": old,
            "after": new,
            "unit": measure.unit,
            "change_percent": 100 * (new / old - 1) if old else None,
            "low_percent": 100 * math.expm1(low) if old and new else None,
            "high_percent": 100 * math.expm1(high) if old and new else None,
            "is_worse": center * measure.worse_if > 0 if measure.worse_if and is_change else None,
            "size": abs(center),
        }


def _change(before: float, after: float) -> str:
    return "changed" if before and after else "new" if after else "gone"


def _comparable(
    before: Profile, after: Profile
) -> Iterator[tuple[Key, Measure, tuple[Group, Group]]]:
    """Groups and measures with a sample that is large enough."""
    empty = [
        Group({name: np.zeros(SLICES) for name in SUMS}, NO_LATENCIES, {}, side.seconds)
        for side in (before, after)
    ]
    for key in dict.fromkeys([*before.groups, *after.groups]):
        groups = before.groups.get(key, empty[0]), after.groups.get(key, empty[1])
        for measure in MEASURES:
            if _is_enough(measure, *groups):
                yield key, measure, groups


def _hot_partitions(
    before: Profile, after: Profile
) -> Iterator[tuple[dict[str, Any], Measure, tuple[Group, Group]]]:
    """The partitions that are hot in one of the captures, by the definition of `skew`, with the
    `detail` of their rows. Both captures have the topic."""
    for topic in before.partitions:
        sides = [each.partitions.get(topic, {}) for each in (before, after)]
        indexes = sorted(set().union(*sides)) if all(sides) else []
        for index in indexes:
            old, new = (_partition(side, index) for side in sides)
            largest = max(_value(old, PARTITION), _value(new, PARTITION))
            is_hot = largest * len(indexes) >= 100 * HOT
            if is_hot and _is_enough(PARTITION, old, new):
                yield {"detail": f"{topic}-{index}"}, PARTITION, (old, new)


def _partition(partitions: dict[int, Group], index: int) -> Group:
    """A partition of a topic in a capture, perhaps without requests."""
    if index in partitions:
        return partitions[index]
    zeros = {"requests": np.zeros(SLICES), "bytes": np.zeros(SLICES)}
    other = next(iter(partitions.values()))
    return replace(other, sums=other.sums | zeros)


def _is_enough(measure: Measure, before: Group, after: Group) -> bool:
    groups = (before, after)
    if measure.is_rate and not all(_is_active(group, LEAST_SLICES) for group in groups):
        return False
    if measure.quantile is not None:
        return all(
            group.latencies[2].sum() >= LEAST_REQUESTS and _is_active(group, BLOCKS)
            for group in groups
        )
    counts = [group.total("requests") for group in groups]
    is_enough = min if measure.denominator == "responses" else max
    events = max(group.total(measure.numerator) for group in groups)
    return is_enough(counts) >= LEAST_REQUESTS and events >= LEAST_EVENTS


def _is_active(group: Group, slices: int) -> bool:
    return group.seconds > 0 and group.active.stop - group.active.start >= slices


def _is_of_one_side(key: dict[str, Any], before: Profile, after: Profile) -> bool:
    """Whether the client, group or topic of a key came or went: it has a row of its own."""
    for measure, column in (("client", "client_id"), ("group", "group_id"), ("topic", "topic")):
        value = (key.get(column),)
        sides = [value in profile.members[measure] for profile in (before, after)]
        if any(sides) and not all(sides):
            return True
    return False


def _value(group: Group, measure: Measure) -> float:
    if measure.quantile is not None:
        return group.quantiles[measure.name] or 0.0
    bottom = group.seconds if measure.is_rate else group.total(measure.denominator)
    return measure.factor * group.total(measure.numerator) / bottom if bottom else 0.0


def _log_of(group: Group, measure: Measure) -> float:
    """The logarithm of the measure in the whole capture; see `bootstrap.logarithms`."""
    if measure.quantile is not None:
        return math.log(max(group.quantiles[measure.name] or 0.0, 1e-3))
    top = group.total(measure.numerator) + 0.5
    if measure.is_rate:
        return math.log(top / group.seconds)
    return math.log(top / (group.total(measure.denominator) + 1))


def _named(names: tuple[str, ...], key: Key) -> dict[str, Any]:
    return {
        name: value if value is None or is_time(name) else str(value)
        for name, value in zip(names, key, strict=True)
    }


def _texts(before: Profile, after: Profile, by: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Clients with other software, or with the same software and other versions of an API."""
    updated = _changed(before.software, after.software)
    changes = [("software", *change) for change in updated]
    changes += [
        ("api_version", *change)
        for change in _changed(before.versions, after.versions)
        if change[0][:1] not in [key for key, *_ in updated]
    ]
    for measure, key, *values in sorted(changes, key=str):
        # The names are in the detail if they have no column.
        name = "" if "client_id" in by else f"{', '.join(map(str, key))}: "
        yield _named(("client_id", "api")[: len(key)], key) | {
            "measure": measure, "change": "changed", "size": 0.0,
            "detail": name + " -> ".join(values),
        }  # fmt: skip


def _changed(
    before: dict[Key, list[str]], after: dict[Key, list[str]]
) -> list[tuple[Key, str, str]]:
    """Keys of both with other values, in any order: their frequency is noise."""
    return [
        (key, ", ".join(old), ", ".join(after[key]))
        for key, old in before.items()
        if key in after and {*old} != {*after[key]}
    ]


def _present(before: Profile, after: Profile, confidence: float) -> Iterator[dict[str, Any]]:
    """Clients, groups and topics in one of the captures only, unless by chance."""
    topic_names = before.topic_names | after.topic_names
    members = []
    for measure in before.members:
        names = topic_names if measure == "topic" else {}
        old, new = (_renamed(side.members[measure], names) for side in (before, after))
        members += [(measure, *key, "gone", old[key]) for key in old.keys() - new.keys()]
        members += [(measure, *key, "new", new[key]) for key in new.keys() - old.keys()]
    probability = (1 - confidence) / max(len(members), 1)
    for measure, name, change, counts in sorted(members, key=lambda each: each[:2]):
        sides = (before, after) if change == "gone" else (after, before)
        if not _is_by_chance(counts, *sides, probability):
            count = float(counts.sum())
            yield {
                "client_id": name if measure == "client" else None,
                "measure": measure, "change": change,
                "before": count if change == "gone" else 0.0,
                "after": count if change == "new" else 0.0,
                "unit": "requests", "detail": name, "size": count,
            }  # fmt: skip


def _is_by_chance(
    counts: NDArray[np.float64], own: Profile, other: Profile, probability: float
) -> bool:
    """Whether requests in these slices of a capture may be absent from the other one by chance,
    with at least this probability.

    A job that runs once in a while is in one of two captures although nothing changed. If its
    requests are in k of n slices, any other slice lacks them with a probability of 1 - k / n, and a
    capture of m such slices with its power of m.
    """
    length = other.seconds / own.seconds if own.seconds else 1.0
    present = np.count_nonzero(counts) / SLICES
    is_rare = counts.sum() * min(length, 1) < LEAST_PRESENT
    return bool(is_rare or (1 - present) ** (SLICES * length) > probability)


def _renamed(
    counts: dict[Key, NDArray[np.float64]], names: dict[str, str]
) -> dict[Key, NDArray[np.float64]]:
    renamed: dict[Key, NDArray[np.float64]] = defaultdict(lambda: np.zeros(SLICES))
    for (name,), count in counts.items():
        renamed[names.get(name, name),] += count
    return renamed

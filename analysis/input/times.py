"""Times and lengths of time that users write.

A time is one of:

    2026-11-21T04:17:40.5Z   ISO 8601, to the nanosecond; in the given zone unless it has an offset
    2026-11-21               the start of a day
    04:17:40.5               a time of day in the given zone, near the start of the capture
    90, 90s, 1.5m, 2h        a length of time after the start of the capture

A length of time is a number with a unit (ms, s, m, h, d), or the name of a unit: ``minute``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import cache
from types import MappingProxyType
from typing import Final

from dissector.errors import DissectorError

SECOND: Final = 10**9
HOUR: Final = 3600 * SECOND
DAY: Final = 24 * HOUR
UNITS: Final = MappingProxyType({"ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": HOUR, "d": DAY})
"""ns by unit."""
NAMED: Final = MappingProxyType({"second": SECOND, "minute": 60 * SECOND, "hour": HOUR, "day": DAY})
LENGTHS: Final = "10s, 5m, 1h, second, minute, hour or day"
TIMES: Final = (
    "ISO 8601 (2026-11-21T04:17:40), a time of day (04:17:40), or seconds after the first packet"
)

_LENGTH: Final = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(UNITS)})")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d+))?)?")
_ISO: Final = re.compile(r"(\d{4}-\d\d-\d\d.*?)(?:[.,](\d+))?(Z|[+-]\d\d:?\d\d)?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WEEK: Final = 7 * 86_400
_YEARS: Final = (1678, 2261)
"""Those of times in ns since 1970 as 64 bits."""
_LONGEST: Final = 10 * 366 * DAY
_YEAR_2100: Final = 4_102_444_800
"""s since 1970."""


def length_ns(text: str) -> int | None:
    """A length of time in ns; None if the text is not one."""
    match = _LENGTH.fullmatch(text)
    return round(float(match[1]) * UNITS[match[2]]) if match else NAMED.get(text)


def is_days(text: str) -> bool:
    """Whether a length of time is a number of days."""
    length = length_ns(text) or 0
    return length > 0 and length % DAY == 0


@cache
def offsets(zone: tzinfo) -> Sequence[tuple[int, int]]:
    """Each offset of the zone from UTC between 1970 and 2100: its start since 1970, and it; ns.

    `tzinfo` has no list of changes. So the offset is looked up for each week: no zone changes it
    twice in a week.
    """
    changes = [(0, _offset(0, zone))]
    for week in range(0, _YEAR_2100, _WEEK):
        before = changes[-1][1]
        if (after := _offset(week + _WEEK, zone)) != before:
            seconds = range(week, week + _WEEK)
            start = week + bisect_left(seconds, True, key=lambda s: _offset(s, zone) == after)
            changes.append((start * SECOND, after))
    return changes


def _offset(second: int, zone: tzinfo) -> int:
    offset = datetime.fromtimestamp(second, zone).utcoffset() or timedelta()
    return (offset.days * 86_400 + offset.seconds) * SECOND


def time_ns(text: str, start: int | None, zone: tzinfo = UTC) -> int | None:
    """A time in ns since 1970; None if it is relative and `start` is None.

    `start`: time of the first packet. `zone`: that of a time without an offset. Raises
    DissectorError if the text is not a time.
    """
    if match := _ISO.fullmatch(text.upper()):  # T and Z may be lower case (RFC 3339)
        return _iso(text, match[1] + (match[3] or ""), match[2], zone)
    if match := _CLOCK.fullmatch(text):
        return _near(text, match, start, zone)
    offset = length_ns(text if text[-1:].isalpha() else f"{text}s")
    if offset is None or offset > _LONGEST:  # more would be a time since 1970
        raise DissectorError(f"{text!r} is not a time; use {TIMES}")
    return None if start is None else start + offset


def _iso(text: str, without_fraction: str, fraction: str | None, zone: tzinfo) -> int:
    try:
        moment = datetime.fromisoformat(without_fraction)
    except ValueError as error:
        raise DissectorError(f"{text!r} is not a time in ISO 8601: {error}") from error
    if not _YEARS[0] <= moment.year <= _YEARS[1]:
        raise DissectorError(f"{text!r} is not a time from {_YEARS[0]} to {_YEARS[1]}")
    return _ns(moment if moment.tzinfo else moment.replace(tzinfo=zone)) + _fraction(fraction)


def _near(text: str, match: re.Match[str], start: int | None, zone: tzinfo) -> int | None:
    """A time of day on the day of the start; on the next day if that is 12 h before it.

    A time that the clock repeats is the second one only if the start is in the repeated time.
    """
    hour, minute, second = (int(each or 0) for each in match.group(1, 2, 3))
    if hour > 23 or minute > 59 or second > 59:
        raise DissectorError(f"{text!r} is not a time of day")
    if start is None:
        return None
    begin = datetime.fromtimestamp(start // SECOND, zone)
    day, clock = begin.date(), time(hour, minute, second, tzinfo=zone, fold=begin.fold)
    moment = _ns(datetime.combine(day, clock)) + _fraction(match[4])
    if moment < start - DAY // 2:
        moment = _ns(datetime.combine(day + timedelta(1), clock)) + _fraction(match[4])
    return moment


def _ns(moment: datetime) -> int:
    """ns since 1970 of a moment."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds * 1000


def _fraction(digits: str | None) -> int:
    """ns of a fraction of a second; further digits are cut."""
    return int((digits or "")[:9].ljust(9, "0"))

"""What is asked of Spark: which tables of which captures, and how; checked before any job runs.

Options of the data source are text:

    table         one of the tables                                                  exchanges
    tables        with `reading`: all tables that are read together
    reading       an identifier: DataFrames that have it share one reading of the captures
    ports         where brokers listen, for connections that began before            9092
    keylog        a file of TLS secrets, which the driver reads
    since, until  ISO 8601, UTC where no zone is said: packets of that time only
    apis          rows of these APIs only, by name or key: ``Produce,1``
    values        false: no keys, values and headers in `records`                    true
    show_secrets  true: leave secrets in `records`                                   false
    shares        into how many tasks connections are dealt                          by size
    spool         folder that driver and executors can read and write                a temporary one
    watermark     streams: seconds, see `analysis.spark.stream`                      900
    state         streams: folder that outlives the query
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from analysis.spark.splits import AFTER_ALL, BEFORE_ALL, SPLIT_BYTES
from dissector.errors import DissectorError, did_you_mean
from dissector.protocol import registry
from dissector.streams.streaming import DEFAULT_MEMORY
from dissector.tables import TABLES

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
WATERMARK: Final = 900
"""Seconds, as one process waits: longer than any broker lets a client wait by default."""


@dataclass(frozen=True, slots=True)
class Request:
    """Which tables of which captures."""

    paths: Sequence[str]
    tables: Sequence[str] = ("exchanges",)
    ports: Sequence[int] | None = None
    """None: 9092."""
    keylog: str | None = None
    since: int = BEFORE_ALL
    """ns since 1970: packets from then on are read"""
    until: int = AFTER_ALL
    """and only those before."""
    apis: Collection[str] = ()
    """Rows of these only; none: of all."""
    values: bool = True
    """Whether `records` has keys, values and headers."""
    show_secrets: bool = False
    shares: int = 0
    """Into how many tasks connections are dealt; 0: by the size of the captures."""
    split_bytes: int = SPLIT_BYTES
    spool: str | None = None
    memory: int = DEFAULT_MEMORY
    """Bytes that a task may take for what waits, as in `dissector.open_capture`."""
    watermark: int = WATERMARK
    """s."""
    state: str | None = None
    reading: str | None = None
    """The first table of several with this identifier is asked for; one plan gives all of them."""


def request(
    paths: Sequence[str],
    tables: Sequence[str],
    *,
    ports: Sequence[int] = (),
    apis: Iterable[str] = (),
    since: str = "",
    until: str = "",
    keylog: str | os.PathLike[str] | None = None,
    show_secrets: bool = False,
    memory: int = DEFAULT_MEMORY,
) -> Request:
    """A request whose times and APIs are words. Raises DissectorError."""
    _check(tables)
    return Request(
        list(paths),
        tables,
        ports=ports or None,
        keylog=None if keylog is None else os.fspath(keylog),
        since=_time(since) if since else BEFORE_ALL,
        until=_time(until) if until else AFTER_ALL,
        apis=frozenset(map(_api, apis)),
        show_secrets=show_secrets,
        memory=memory,
    )


def parse(options: Mapping[str, str]) -> Request:
    """The request that options make. Raises DissectorError."""
    rest = {name.lower(): value for name, value in options.items()}
    paths = json.loads(rest.pop("paths", "[]")) or [rest.pop("path", "")]
    if paths == [""]:
        raise DissectorError("which captures? load(PATH), or the option path")
    table = rest.pop("table", "exchanges")
    tables = tuple(dict.fromkeys([table, *_words(rest, "tables")]))
    _check(tables)
    found = Request(
        paths,
        tables,
        ports=[_number("ports", word) for word in _words(rest, "ports")] or None,
        keylog=rest.pop("keylog", None),
        since=_time(rest.pop("since")) if "since" in rest else BEFORE_ALL,
        until=_time(rest.pop("until")) if "until" in rest else AFTER_ALL,
        apis=frozenset(map(_api, _words(rest, "apis"))),
        values=_flag(rest, "values", "true"),
        show_secrets=_flag(rest, "show_secrets", "false"),
        shares=_number("shares", rest.pop("shares", "0")),
        spool=rest.pop("spool", None),
        watermark=_number("watermark", rest.pop("watermark", str(WATERMARK))),
        state=rest.pop("state", None),
        reading=rest.pop("reading", None),
    )
    if rest:
        raise DissectorError(f"no option is called {next(iter(rest))}")
    return found


def _check(tables: Sequence[str]) -> None:
    for name in tables:
        if name not in TABLES:
            raise DissectorError(
                f"no table is called {name}: there are {', '.join(TABLES)}"
                f"{did_you_mean(name, TABLES)}"
            )


def _words(options: dict[str, str], name: str) -> list[str]:
    return options.pop(name, "").replace(",", " ").split()


def _number(name: str, word: str) -> int:
    if not word.isdecimal():
        raise DissectorError(f"{name} is a number, not {word}")
    return int(word)


def _flag(options: dict[str, str], name: str, default: str) -> bool:
    word = options.pop(name, default).lower()
    if word not in ("true", "false"):
        raise DissectorError(f"{name} is true or false, not {word}")
    return word == "true"


def _api(word: str) -> str:
    """The name of an API, by name or key."""
    name = registry.api_name(int(word)) if word.isdecimal() else word
    if name is None or name not in registry.apis().values():
        raise DissectorError(f"no API is called {word}")
    return name


def _time(text: str) -> int:
    """ISO 8601 as ns since 1970."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise DissectorError(f"{text} is no time in ISO 8601") from error
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
    return ((since.days * 86400 + since.seconds) * 10**6 + since.microseconds) * 1000

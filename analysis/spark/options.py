"""The request: which tables of which captures. It is validated before any job runs.

Options of the data source are text:

    table         name of a table                                              exchanges
    tables        with `plan_id`: names of all tables that are made together
    plan_id       DataFrames with the same identifier share one plan
    ports         broker ports, for connections that started earlier           9092
    keylog        file of TLS secrets, which the driver reads
    since, until  time range of packets, in ISO 8601, UTC by default
    apis          only rows of these APIs, by name or key: ``Produce,1``
    columns       only these columns, separated by commas                      all
    values        false: no keys, values and headers in `records`              true
    show_secrets  true: do not redact                                          false
    result_dir    folder that driver and executors can read and write          temporary
    watermark     streams: seconds, see `analysis.spark.stream`                900
    state         streams: folder that outlives the query
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from analysis.input.times import time_ns
from dissector.arguments import integer, local_path
from dissector.arrays import value
from dissector.errors import DissectorError, did_you_mean
from dissector.packets.block import LAST_PORT
from dissector.packets.files import AFTER_ALL, BEFORE_ALL
from dissector.packets.formats.remote import is_url
from dissector.protocol import registry
from dissector.streams.streaming import DEFAULT_MEMORY
from dissector.tables import TABLES

WATERMARK: Final = 900
"""Seconds, as in one process: longer than the default timeouts of brokers."""

OPTIONS: Final = (
    "path", "table", "tables", "plan_id", "ports", "keylog", "since", "until", "apis", "columns",
    "values", "show_secrets", "result_dir", "watermark", "state",
)  # fmt: skip
"""The names of the options."""

_OF_CATALOG: Final = {"owner", "provider"}
"""Options that Spark adds when it creates a table of its catalog. When such a table is read, Spark
4.3 passes no options to a data source in Python, not even the path."""
_NOT_KEPT: Final = (
    "Spark's catalog does not keep the options of a table: use `create temporary view NAME using "
    "kafka_capture options (...)`, or spark.read"
)


@value
class Request:
    """Tables of captures, and how to make them."""

    paths: Sequence[str]
    tables: Sequence[str] = ("exchanges",)
    ports: Sequence[int] | None = None
    """None: 9092."""
    keylog: str | None = None
    since: int = BEFORE_ALL
    """ns since 1970; earlier packets are skipped."""
    until: int = AFTER_ALL
    """ns since 1970; packets at or after this time are skipped."""
    apis: Collection[str] = ()
    """Only rows of these APIs; empty: all."""
    columns: Sequence[str] = ()
    """Only these columns of the data source; empty: all."""
    values: bool = True
    """Whether `records` has keys, values and headers."""
    show_secrets: bool = False
    run_bytes: int = 0
    """Approximate bytes of a run; 0: by the size of the captures and the number of cores."""
    result_dir: str | None = None
    memory: int = DEFAULT_MEMORY
    """Bytes of pending data per task, as in `dissector.open_capture`."""
    watermark: int = WATERMARK
    """Seconds."""
    state: str | None = None
    plan_id: str | None = None
    """Identifier of a plan that makes all `tables`; the first of them is requested."""


def request(
    paths: Sequence[str],
    tables: Sequence[str],
    *,
    ports: Sequence[int] = (),
    apis: Iterable[str] = (),
    since: str | None = None,
    until: str | None = None,
    keylog: str | os.PathLike[str] | None = None,
    show_secrets: bool = False,
    memory: int = DEFAULT_MEMORY,
) -> Request:
    """A request from times and APIs as text. Raises DissectorError."""
    for name in tables:
        if name not in TABLES:
            raise DissectorError(
                f"unknown table {name}; the tables are {', '.join(TABLES)}"
                f"{did_you_mean(name, TABLES)}"
            )
    return Request(
        list(map(local_path, paths)),
        tables,
        ports=ports or None,
        keylog=None if keylog is None else os.fspath(keylog),
        since=BEFORE_ALL if since is None else _time(since),
        until=AFTER_ALL if until is None else _time(until),
        apis=frozenset(map(registry.find_api, apis)),
        show_secrets=show_secrets,
        memory=memory,
    )


def parse(options: Mapping[str, str]) -> Request:
    """The request of these options. Raises DissectorError."""
    remaining = {name.lower(): value for name, value in options.items()}
    if remaining.keys() >= _OF_CATALOG:
        raise DissectorError(_NOT_KEPT)
    paths = json.loads(remaining.pop("paths", "[]")) or [remaining.pop("path", "")]
    if paths == [""]:
        raise DissectorError(f"no captures: pass a path to load(), or the option path; {_NOT_KEPT}")
    table = remaining.pop("table", "exchanges")
    made = request(
        paths,
        tuple(dict.fromkeys([table, *_words(remaining, "tables")])),
        ports=[_port(word) for word in _words(remaining, "ports")],
        apis=_words(remaining, "apis"),
        since=remaining.pop("since", None),
        until=remaining.pop("until", None),
        keylog=remaining.pop("keylog", None),
        show_secrets=_flag(remaining, "show_secrets", "false"),
    )
    made = replace(
        made,
        columns=_words(remaining, "columns"),
        values=_flag(remaining, "values", "true"),
        result_dir=_folder(remaining, "result_dir"),
        watermark=_number("watermark", remaining.pop("watermark", str(WATERMARK))),
        state=_folder(remaining, "state"),
        plan_id=remaining.pop("plan_id", None),
    )
    if remaining:
        name = next(iter(remaining))
        raise DissectorError(
            f"unknown option {name}; the options are {', '.join(OPTIONS)}"
            f"{did_you_mean(name, OPTIONS)}"
        )
    return made


def _words(options: dict[str, str], name: str) -> list[str]:
    return options.pop(name, "").replace(",", " ").split()


def _number(name: str, word: str) -> int:
    if not (word.isascii() and word.isdecimal()):
        raise DissectorError(f"{name} must be a number, not {word}")
    return int(word)


def _port(word: str) -> int:
    return integer("ports", _number("ports", word), 1, LAST_PORT)


def _flag(options: dict[str, str], name: str, default: str) -> bool:
    word = options.pop(name, default).lower()
    if word not in ("true", "false"):
        raise DissectorError(f"{name} must be true or false, not {word}")
    return word == "true"


def _folder(options: dict[str, str], name: str) -> str | None:
    """The absolute path of a folder; None if the option is missing."""
    path = options.pop(name, None)
    if path is None:
        return None
    if is_url(path := local_path(path)):
        raise DissectorError(f"{name} must be the path of a folder, not the URL {path}")
    return str(Path(path).absolute())


def _time(text: str) -> int:
    """A time in ns since 1970. Raises DissectorError for one that needs the start of a capture."""
    try:
        time = time_ns(text, None)
    except DissectorError:  # whose text offers such times
        time = None
    if time is None:
        raise DissectorError(f"{text!r} is not a time; use ISO 8601 (2026-11-21T04:17:40)")
    return time

"""Filters: which exchanges a command reads.

A filter is a condition in SQL (see `analysis.sql.conditions`). Short forms stand for frequent
conditions. An exchange is selected if it meets all conditions; if a short form has several values,
one of them is enough:

    where   a condition: "api = 'Produce' AND latency_ms > 100"
    client  client id, address of the client, or a name of the address
    topic   a topic of the exchange
    api     name or number of the API
    broker  address of the broker, with or without its port; a name of the address; or broker id
    since   time of the request; see `analysis.input.times`. Without a request: of the response
    until   likewise; exchanges at this time or later are not selected
    cluster id of the cluster of the broker; see `analysis.input.cluster_connections`

In `client`, `topic` and names, ``*`` stands for any text, and ``?`` for any character.

The other tables follow from the selected exchanges: a row that belongs to an exchange stays if the
exchange is selected, and a connection if one of its exchanges is. `topics`, `brokers`, `clusters`
and `problems` describe the cluster and the capture. Only `cluster` selects their rows.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Final

from analysis.input.times import SECOND, time_ns
from analysis.names.addresses import Names
from analysis.sql.expressions import literal
from dissector import arguments
from dissector.arrays import value
from dissector.errors import DissectorError

if TYPE_CHECKING:
    from analysis.input.exported import ExportedTables
    from analysis.input.loaded import LoadedTables, Rows
    from analysis.input.selection import Selection
    from dissector.capture import Capture

SHORT_FORMS: Final = ("client", "topic", "api", "broker", "since", "until", "cluster")
_LISTS: Final = ("where", "client", "topic", "api", "broker", "cluster")
"""Fields with several values."""

_OPTION: Final = re.compile(r"(?<!\S)--\w")
"""The first option in the text of a filter. Two hyphens and a space begin a comment in SQL."""
_TIME: Final = "coalesce(request_time, response_time)"


@value
class Filter:
    """Conditions on exchanges, with the names and values of the options of commands.

    For example ``Filter(client=["app*"], where="latency_ms > 100", since="04:17:40")``.

    An exchange is selected if it meets all of them. A filter without conditions is false, and
    selects all exchanges.

    `where`: SQL over the columns of `exchanges`; of several conditions, all must hold. Of the
    following values, each a text or a list, one must match. `client`: ids, addresses and names of
    clients. `topic`: names of topics. `api`: names and numbers of APIs. `broker`: addresses, with
    or without a port, ids and names of brokers. `cluster`: ids of clusters. In `client` and
    `topic`, ``*`` matches any text. `since`: requests from this time on, in ISO 8601, as a time of
    day, or in seconds after the first packet; ``str(time)`` for a time of pandas. `until`: requests
    before this time. `zone`: the zone of both, unless they have an offset.

    Raises DissectorError for a value of another type, an unknown API, a wrong time, a wrong
    condition, and an end that is not after the start.
    """

    where: Sequence[str] = ()
    client: Sequence[str] = ()
    topic: Sequence[str] = ()
    api: Sequence[str] = ()
    broker: Sequence[str] = ()
    since: str = ""
    until: str = ""
    cluster: Sequence[str] = ()
    start: int | None = None
    """Time of the first packet, ns; only needed if `is_relative`."""
    zone: tzinfo = UTC
    """Zone of `since` and `until`, unless they have an offset."""
    names: Names = field(default_factory=Names, compare=False)
    """Names of clients and brokers, besides their addresses."""

    def __post_init__(self) -> None:
        for name in _LISTS:
            object.__setattr__(self, name, arguments.texts(name, getattr(self, name)))
        for name in ("since", "until"):
            arguments.text(name, getattr(self, name))
        if not isinstance(self.zone, tzinfo):
            raise DissectorError(f"zone must be a tzinfo such as ZoneInfo, not {self.zone!r}")
        _ = self._apis
        since, until = self._time("since"), self._time("until")
        if since is not None and until is not None and until <= since:
            raise DissectorError(f"--until {self.until} is not after --since {self.since}")
        if self.where:
            from analysis.sql.conditions import Condition

            for condition in self.where:
                Condition(condition, has_computed=True)

    def __bool__(self) -> bool:
        return bool(self.options)

    @property
    def is_relative(self) -> bool:
        """Whether a time depends on the start of the capture, which is not known yet."""
        return any(time_ns(text, self.start, self.zone) is None for text in self._times)

    @property
    def has_broker_ids(self) -> bool:
        """Whether a broker is given by its id, which only responses contain."""
        return any(text.isdecimal() for text in self.broker)

    @property
    def computed(self) -> list[str]:
        """The columns in conditions that only the whole capture gives, such as net_ms."""
        if not self.where:
            return []
        from analysis.sql.conditions import Condition

        conditions = (Condition(each, has_computed=True) for each in self.where)
        return sorted({name for condition in conditions for name in condition.computed})

    def starting(self, start: int | None) -> Filter:
        """The filter for a capture whose first packet has this time, in ns; None: unknown."""
        return replace(self, start=start)

    @property
    def options(self) -> list[str]:
        """The options of a command that make this filter."""
        options = []
        for name in ("where", *SHORT_FORMS):
            given = getattr(self, name)
            for text in filter(None, [given]) if isinstance(given, str) else given:
                options += [f"--{name}", text]
        return options

    @property
    def text(self) -> str:
        """The text from which `parse` makes this filter."""
        if len(self.where) != 1 or _OPTION.search(self.where[0]):
            return shlex.join(self.options)
        return " ".join(filter(None, [*self.where, shlex.join(replace(self, where=()).options)]))

    @classmethod
    def parse(cls, text: str, *, names: Names | None = None, zone: tzinfo = UTC) -> Filter:
        """The filter of a text: a condition, then options as on the command line, both optional.

        For example ``latency_ms > 100 --client app --topic orders``. Raises DissectorError.
        """
        start = _OPTION.search(text)
        end = start.start() if start else len(text)
        given: dict[str, list[str]] = {name: [] for name in ("where", *SHORT_FORMS)}
        given["where"] += filter(None, [text[:end].strip()])
        try:
            words = deque(shlex.split(text[end:]))
        except ValueError as error:
            raise DissectorError(f"{text[end:]}: {str(error).lower()}") from error
        while words:
            option, has_value, value = words.popleft().partition("=")
            name = option.removeprefix("--")
            if name not in given or not option.startswith("--"):
                allowed = ", ".join(f"--{each}" for each in given)
                raise DissectorError(f"{option} is not an option of a filter: use {allowed}")
            if not has_value and not words:
                raise DissectorError(f"{option} needs a value")
            given[name].append(value if has_value else words.popleft())
        since, until = ((given.pop(name) or [""])[-1] for name in ("since", "until"))
        return cls(
            given["where"], given["client"], given["topic"], given["api"], given["broker"], since,
            until, given["cluster"], zone=zone, names=names or Names(),
        )  # fmt: skip

    @property
    def sql(self) -> str:
        """The condition; ``true`` if there is none.

        Raises DissectorError if a time is relative and the start is not known, or for `cluster`,
        which only `ClusterConnections` selects.
        """
        if self.cluster:
            raise DissectorError("--cluster depends on the whole capture, which is not known here")
        conditions = (
            " or ".join([*map(_is_client, self.client), *self._named("client")]),
            " or ".join(_contains("topics", each) for each in self.topic),
            " or ".join(f"api = {literal(each)}" for each in self._apis),
            " or ".join([*map(_is_broker, self.broker), *self._named("broker")]),
            f"{_TIME} >= {self._timestamp(self.since)}" if self.since else "",
            f"{_TIME} < {self._timestamp(self.until)}" if self.until else "",
            # A comment ends with its line.
            *(f"{each}\n" if "--" in each else each for each in self.where),
        )
        return " and ".join(_in_parentheses([each for each in conditions if each])) or "true"

    def _named(self, side: str) -> Iterable[str]:
        """SQL: whether a name of the client or broker is given."""
        given: Sequence[str] = getattr(self, side) if self.names else ()
        return (_contains(f"{side}_names", text) for text in given)

    def apply(self, tables: Mapping[str, Rows]) -> dict[str, Rows]:
        """The selected rows of tables, of which one is `exchanges`.

        `tables`: those of `load` or `Capture.tables`. The start of the capture is the
        first time of `connections`, if given. Raises DissectorError.
        """
        import pyarrow as pa

        from analysis.frames import frame
        from analysis.input.loaded import LoadedTables
        from dissector.pipeline import collected
        from dissector.tables import EXCHANGES

        loaded = LoadedTables(tables)
        rows = loaded.stream({*tables, EXCHANGES.name})
        selected = collected(self.selection(loaded).rows(rows, tables), tables)
        return {
            name: rows if isinstance(tables[name], pa.Table) else frame(rows)
            for name, rows in selected.items()
        }

    def selection(self, source: Capture | ExportedTables | LoadedTables) -> Selection:
        """The selection of rows, which needs passes of its own for what no row contains.

        Raises DissectorError for a relative time if the first time of the capture is unknown, if a
        capture can be read only once, a table is missing, or a cluster is not in the capture.
        """
        from analysis.input.cluster_connections import CLUSTER_TABLES, ClusterConnections
        from analysis.input.passes import check_repeatable, first_time
        from analysis.input.selection import COMPUTED_TABLES, Selection, selected_keys
        from dissector.capture import Capture

        chosen, clusters, keys = replace(self, cluster=()), None, None
        if self.is_relative:
            start = first_time(source.paths) if isinstance(source, Capture) else source.first_time
            chosen = chosen.starting(start)
        if self.has_broker_ids:
            check_repeatable(source, "--broker ID", "use the address of the broker")
            for _, batch in source.stream(["brokers"]):
                self.names.learn_brokers(batch)
        if self.cluster:
            check_repeatable(source, "--cluster", "use --broker, or a file")
            rows = source.stream(CLUSTER_TABLES)
            clusters = ClusterConnections.of(rows, self.cluster, self.names)
        if computed := self.computed:
            option = f"--where with {computed[0]}"
            check_repeatable(source, option, "use latency_ms, or a file")
            rows = source.stream(COMPUTED_TABLES)
            keys = selected_keys(rows, chosen.sql, self.names, clusters)
        return Selection(chosen.sql, self.names, keys, clusters)

    def _time(self, name: str) -> int | None:
        """The time of `since` or `until`; None without it, or if the start is not known."""
        try:
            return time_ns(text, self.start, self.zone) if (text := getattr(self, name)) else None
        except DissectorError as error:
            raise DissectorError(f"--{name} {error}") from error

    @property
    def _apis(self) -> list[str]:
        if not self.api:
            return []
        from dissector.protocol.registry import find_api

        try:
            return [find_api(text) for text in self.api]
        except DissectorError as error:
            keys = " or ".join(f"api_key = {text}" for text in self.api if text.isdecimal())
            hint = f'; for exchanges of an unknown API, use --where "{keys}"' if keys else ""
            raise DissectorError(f"--api: {error}{hint}") from error

    @property
    def _times(self) -> list[str]:
        return [text for text in (self.since, self.until) if text]

    def _timestamp(self, text: str) -> str:
        """SQL for a time."""
        if (time := time_ns(text, self.start, self.zone)) is None:
            raise DissectorError(
                f"{text}: the time of the first packet is not known here; use ISO 8601"
            )
        second, fraction = divmod(time, SECOND)
        date = datetime.fromtimestamp(second, UTC).replace(tzinfo=None)
        digits = f".{fraction:09}".rstrip("0").rstrip(".")
        return f"'{date}{digits}'"


def _in_parentheses(conditions: Sequence[str]) -> Iterable[str]:
    """Conditions that can be joined with ``and``."""
    if len(conditions) == 1:
        return conditions
    return (f"({each})" if re.search(r"\bor\b|--", each, re.I) else each for each in conditions)


def _is_client(text: str) -> str:
    return f"{_matches('client_id', text)} or {_matches('client', text)}"


def _is_broker(text: str) -> str:
    return f"broker = {literal(text)} or broker_ip = {literal(text)}"


def _contains(column: str, text: str) -> str:
    """SQL: whether a column of lists contains a text, which may have wildcards."""
    if _WILDCARD.search(text):
        return f"len(list_filter({column}, lambda each: {_matches('each', text)})) > 0"
    return f"list_contains({column}, {literal(text)})"


_WILDCARD: Final = re.compile(r"[*?]")


def _matches(column: str, text: str) -> str:
    """SQL: whether a column has a text, which may have wildcards."""
    if _WILDCARD.search(text):
        # A backslash is an escape in a pattern, and a bracket begins a set.
        pattern = text.replace("\\", "\\\\").replace("[", "[[]")
        return f"{column} glob {literal(pattern)}"
    return f"{column} = {literal(text)}"

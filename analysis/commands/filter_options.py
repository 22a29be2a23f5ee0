"""The options that select exchanges; see `analysis.input.filters`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click

from analysis.commands.options import filter_option, usage_errors

if TYPE_CHECKING:
    from analysis.input.filters import Filter

OPTIONS: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType({
    "where": filter_option(
        "--where", multiple=True, metavar="CONDITION",
        help="Select exchanges that meet this SQL condition on the columns of the table exchanges, "
        "or on net_ms (latency excluding waits): \"api = 'Produce' AND net_ms > 100\". Other "
        "tables keep the rows of these exchanges. May be repeated: all conditions must hold.",
    ),
    "client": filter_option(
        "--client", multiple=True, metavar="NAME",
        help="Select exchanges of this client id or client address; * matches any text. May be "
        "repeated.",
    ),
    "topic": filter_option(
        "--topic", multiple=True, metavar="NAME",
        help="Select exchanges with this topic; * matches any text. May be repeated.",
    ),
    "api": filter_option(
        "--api", multiple=True, metavar="NAME", help="Select exchanges of this API. May be "
        "repeated.",
    ),
    "broker": filter_option(
        "--broker", multiple=True, metavar="ADDRESS[:PORT]",
        help="Select exchanges of this broker, by its address, its id, or a name in --names. May "
        "be repeated.",
    ),
    "cluster": filter_option(
        "--cluster", multiple=True, metavar="ID",
        help="Select brokers of this cluster, in all tables. The table clusters has "
        "the ids. May be repeated.",
    ),
    "since": filter_option(
        "--since", metavar="TIME",
        help="Select requests from this time on: 2026-11-21T04:17:40 (UTC), 04:17:40, or 90 "
        "(seconds after the first packet).",
    ),
    "until": filter_option(
        "--until", metavar="TIME", help="Select requests before this time, in the format of "
        "--since.",
    ),
})  # fmt: skip
"""The options, by field of `Filter`."""


def taken(given: dict[str, Any], names: Sequence[str]) -> Filter | None:
    """The filter of the options, which are removed from those of a command; None without any.

    `names`: of the options; a command may have others with the same name. Raises click.UsageError
    for a wrong value.
    """
    if any(given[name] == "" for name in names):  # for example an unset variable of the shell
        raise click.UsageError("--since and --until need a time")
    conditions: dict[str, Any] = {name: text for name in names if (text := given.pop(name, None))}
    if not conditions:
        return None
    from analysis.display import presentation
    from analysis.input.filters import Filter

    with usage_errors():
        return Filter(**conditions, names=presentation.names(), zone=presentation.zone())


ON_ARRIVAL: Final = tuple(name for name in OPTIONS if name != "cluster")
"""The options that do not depend on the whole capture."""

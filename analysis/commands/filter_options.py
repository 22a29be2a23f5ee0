"""The options that select exchanges; see `analysis.input.filters`."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, cast

import click

from analysis.commands.common import F, Input, usage_errors
from analysis.commands.sections import filter_option

if TYPE_CHECKING:
    from analysis.input.filters import Filter

_OPTIONS: Final = (
    filter_option(
        "--where", multiple=True, metavar="CONDITION",
        help="Select exchanges that meet this SQL condition on the columns of the table exchanges, "
        "or on net_ms (latency excluding waits): \"api = 'Produce' AND net_ms > 100\". Other "
        "tables keep the rows of these exchanges.",
    ),
    filter_option(
        "--client", multiple=True, metavar="NAME",
        help="Select exchanges of this client id or client address; * matches any text.",
    ),
    filter_option(
        "--topic", multiple=True, metavar="NAME",
        help="Select exchanges with this topic; * matches any text.",
    ),
    filter_option("--api", multiple=True, metavar="NAME", help="Select exchanges of this API."),
    filter_option(
        "--broker", multiple=True, metavar="ADDRESS[:PORT]",
        help="Select exchanges of this broker, by its address, its id, or a name in --names.",
    ),
    filter_option(
        "--since", metavar="TIME",
        help="Select requests from this time on: 2026-11-21T04:17:40 (UTC), 04:17:40, or 90 "
        "(seconds after the first packet).",
    ),
    filter_option(
        "--until", metavar="TIME", help="Select requests before this time, in the format of "
        "--since."
    ),
)  # fmt: skip


def on_filter(command: F) -> F:
    """Add the options; the filter is in the `Input` that the command gets as `source`.

    Use it below `on_capture`.
    """

    def run(source: Input, chosen: Filter | None, **given: Any) -> Any:
        return command(source=replace(source, filter=chosen), **given)

    return with_filter(cast(F, wraps(command)(run)))


def with_filter(command: F) -> F:
    """Add the options; the command gets a `Filter` as `chosen`, None without conditions."""

    @wraps(command)
    def run(
        where: tuple[str, ...], client: tuple[str, ...], topic: tuple[str, ...],
        api: tuple[str, ...], broker: tuple[str, ...], since: str | None, until: str | None,
        **given: Any,
    ) -> Any:  # fmt: skip
        if "" in (since, until):  # for example an unset variable of the shell
            raise click.UsageError("--since and --until need a time")
        chosen = None
        if where or client or topic or api or broker or since or until:
            from analysis.display.presentation import names, zone
            from analysis.input.filters import Filter

            with usage_errors():
                chosen = Filter(
                    where, client, topic, api, broker, since or "", until or "",
                    names=names(), zone=zone(),
                )  # fmt: skip
        return command(chosen=chosen, **given)

    for option in reversed(_OPTIONS):
        run = option(run)
    return cast(F, run)

"""``kafka-dissector show``: print exchanges field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from analysis.commands.common import SHOW_SECRETS, Input, on_capture_alone, on_pager
from analysis.commands.filter_options import on_filter

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dissector.exchanges.exchange import Exchange

CHOICES: Final[dict[str, Callable[[Exchange], bool]]] = {
    "errors": lambda exchange: bool(exchange.error_count),
    "throttled": lambda exchange: bool(exchange.throttle_time_ms),
    "unanswered": lambda exchange: exchange.status == "unanswered",
    "undecoded": lambda exchange: exchange.status == "undecoded",
    "request_missing": lambda exchange: exchange.status == "request_missing",
}
"""Conditions of `show --only`."""


@click.command("show")
@on_capture_alone
@on_filter
@click.option(
    "--packet",
    type=int,
    metavar="N",
    help="Show only exchanges whose request or response starts in packet N.",
)
@click.option(
    "--correlation-id", type=int, metavar="N", help="Show only exchanges with this correlation id."
)
@click.option(
    "--connection", type=int, metavar="N", help="Show only exchanges of this connection_id."
)
@click.option(
    "--only", type=click.Choice(list(CHOICES)), help="Show only exchanges with this property."
)
@click.option(
    "--limit", type=click.IntRange(1), default=10, show_default=True, metavar="N",
    help="Show at most N exchanges.",
)  # fmt: skip
@click.option("--show-secrets", is_flag=True, help=SHOW_SECRETS)
@on_pager
def command(
    source: Input,
    packet: int | None,
    correlation_id: int | None,
    connection: int | None,
    only: str | None,
    limit: int,
    show_secrets: bool,
    no_pager: bool,
) -> None:
    """Show exchanges as trees: offset, field, value.

    Shows the first exchanges of the capture, or the first that match all options.
    """
    from analysis.display.exchange_tree import tree
    from analysis.display.terminal import write

    def is_chosen(exchange: Exchange) -> bool:
        return (
            packet in (None, exchange.request_packet, exchange.response_packet)
            and correlation_id in (None, exchange.correlation_id)
            and connection in (None, exchange.connection_id)
            and (only is None or CHOICES[only](exchange))
        )

    with source.opened() as capture:
        # One more than the limit, to know whether the output is complete.
        chosen = list(islice(filter(is_chosen, capture.exchanges()), limit + 1))
    trees = (tree(exchange, secrets=show_secrets) for exchange in chosen[:limit])
    write((part for each in _apart(trees) for part in each), pager=not no_pager)
    if not chosen:
        click.echo("No exchange in this capture matches the options.", err=True)
    elif len(chosen) > limit:
        click.echo(f"Showing the first {limit:,}; raise --limit for more.", err=True)


def _apart(
    trees: Iterable[Iterable[RenderableType]],
) -> Iterator[Iterable[RenderableType]]:
    """The trees, separated by empty lines."""
    for index, each in enumerate(trees):
        if index:
            yield ("",)
        yield each

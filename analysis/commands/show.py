"""``kafka-dissector show``: print exchanges field by field."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from analysis.commands.common import ONLY_SEGMENTS, Input, on_capture_alone
from analysis.commands.options import (
    Choice,
    Integer,
    decoder,
    named_command,
    on_pager,
    on_schema_registry,
    on_secrets,
    output_option,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from analysis.timeline.exchange import Event
    from dissector.embedded.records import Decode
    from dissector.exchanges.exchange import Exchange

CHOICES: Final[dict[str, Callable[[Exchange], bool]]] = {
    "errors": lambda exchange: bool(exchange.error_count),
    "throttled": lambda exchange: bool(exchange.throttle_time_ms),
    "unanswered": lambda exchange: exchange.status == "unanswered",
    "undecoded": lambda exchange: exchange.status == "undecoded",
    "request_missing": lambda exchange: exchange.status == "request_missing",
}
"""Conditions of `show --only`."""


@named_command("show")
@on_capture_alone
@click.option(
    "--packet", type=Integer(1), metavar="N",
    help="Show only exchanges whose request or response starts in packet N.",
)  # fmt: skip
@click.option(
    "--correlation-id", type=int, metavar="N", help="Show only exchanges with this correlation id."
)
@click.option(
    "--connection", type=int, metavar="N", help="Show only exchanges of this connection_id."
)
@click.option("--only", type=Choice(list(CHOICES)), help="Show only exchanges with this property.")
@click.option(
    "--limit", type=Integer(1), default=10, show_default=True, metavar="N",
    help="Show at most N exchanges.",
)  # fmt: skip
@click.option(
    "--timeline", "with_timeline", is_flag=True,
    help="Also show the packets of each exchange: segments, retransmissions, acknowledgements, "
    "zero windows and waits. The capture is read twice.",
)  # fmt: skip
@output_option(
    "--format", "form", type=Choice(["tree", "json"]), default="tree", show_default=True,
    help="Print a tree for each exchange, or a JSON object per line.",
)  # fmt: skip
@on_schema_registry
@on_secrets
@on_pager
def command(
    source: Input, packet: int | None, correlation_id: int | None, connection: int | None,
    only: str | None, limit: int, with_timeline: bool, form: str, registry: str | None,
    show_secrets: bool, no_pager: bool,
) -> None:  # fmt: skip
    """Show exchanges as trees: offset, field, value.

    Shows the first exchanges of the capture, or the first that match all options. Reading stops
    when the limit is reached.
    """

    from dissector.packets.paths import find

    # Packet numbers start at 1 in each file.
    names_file = len(find(source.captures)) > 1
    nearest = None if packet is None else _Nearest(packet, names_file=names_file)

    def is_chosen(exchange: Exchange) -> bool:
        return (
            correlation_id in (None, exchange.correlation_id)
            and connection in (None, exchange.connection_id)
            and (only is None or CHOICES[only](exchange))
            and (nearest is None or nearest.starts_at(exchange))
        )

    with source.opened() as capture:
        chosen = list(islice(filter(is_chosen, capture.exchanges()), limit))
    timelines = _timelines(source, chosen) if with_timeline and chosen else None
    with source.options(show_progress=False):
        decode = decoder(registry)
        if form == "json":
            _print_json(chosen, timelines, show_secrets, decode)
        else:
            _print_trees(
                chosen, timelines, show_secrets, decode, names_file=names_file,
                pager=not no_pager,
            )  # fmt: skip
    if not chosen:
        hint = "" if nearest is None else f" {nearest.hint()}"
        nothing = f"No exchange in this capture matches the options.{hint}"
        click.echo(ONLY_SEGMENTS if source.has_only_segments else nothing, err=True)
    elif len(chosen) == limit:
        from analysis.display.terminal import counted

        stopped = f"Stopped after {counted(limit, 'exchange')}; raise --limit for more."
        click.echo(stopped, err=True)


class _Nearest:
    """The messages that start before and after a packet, next to it."""

    def __init__(self, packet: int, *, names_file: bool) -> None:
        """`names_file`: the capture has several files."""
        self._packet, self._names_file = packet, names_file
        self._before: tuple[int, str] | None = None
        self._after: tuple[int, str] | None = None

    def starts_at(self, exchange: Exchange) -> bool:
        """Whether the request or the response starts in the packet."""
        numbers = {"request": exchange.request_packet, "response": exchange.response_packet}
        for message, number in numbers.items():
            if number is not None:
                name = f"{exchange.api or 'unknown'} {message}, connection {exchange.connection_id}"
                name += f", {_file(exchange)}" if self._names_file else ""
                self._compare((number, f"{number} ({name})"))
        return self._packet in numbers.values()

    def _compare(self, start: tuple[int, str]) -> None:
        if start[0] < self._packet:
            self._before = max(self._before or start, start)
        else:
            self._after = min(self._after or start, start)

    def hint(self) -> str:
        """A sentence for the case that no message starts in the packet, such as an ACK."""
        ends = [end[1] for end in (self._before, self._after) if end is not None]
        start = "the nearest ones start in packets" if len(ends) > 1 else "the nearest is packet"
        nearest = f"; {start} {' and '.join(ends)}" if ends else ""
        return f"--packet is the packet in which a message starts{nearest}."


def _file(exchange: Exchange) -> str:
    """The file of an exchange among several ones, and whether its response is in another one."""
    from analysis.display.terminal import printable
    from dissector.packets.paths import input_name
    from dissector.redaction import without_credentials

    request, response = exchange.request_packet, exchange.response_packet
    goes_on = request is not None and response is not None and response < request
    name = printable(without_credentials(input_name(exchange.capture)))
    return f"file {name}{', the response in a later one' if goes_on else ''}"


def _timelines(source: Input, exchanges: Sequence[Exchange]) -> list[list[Event]]:
    from analysis.timeline.exchange import timelines

    with source.options():
        return timelines(source.captures, exchanges, **source.pass_options)


def _print_trees(
    exchanges: Sequence[Exchange], timelines: Sequence[Sequence[Event]] | None,
    show_secrets: bool, decode: Decode | None, *, names_file: bool, pager: bool,
) -> None:  # fmt: skip
    from rich.text import Text

    from analysis.display.exchange_tree import SCREEN_FIELDS, timeline, tree
    from analysis.display.terminal import write

    most = SCREEN_FIELDS if sys.stdout.isatty() else None

    def parts() -> Iterator[RenderableType]:
        for index, exchange in enumerate(exchanges):
            if index:
                yield ""
            if names_file:
                yield Text(_file(exchange))
            yield from tree(exchange, secrets=show_secrets, decode=decode, most=most)
            if timelines is not None:
                yield from timeline(exchange, timelines[index])

    write(parts(), pager=pager)


def _print_json(
    exchanges: Sequence[Exchange], timelines: Sequence[Sequence[Event]] | None,
    show_secrets: bool, decode: Decode | None,
) -> None:  # fmt: skip
    from analysis.display.exchange_json import as_json, timeline_json
    from analysis.export.text import TerminalJson, json_line

    sink = TerminalJson(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer
    for index, exchange in enumerate(exchanges):
        row = as_json(exchange, secrets=show_secrets, decode=decode)
        if timelines is not None:
            row["timeline"] = [timeline_json(event) for event in timelines[index]]
        sink.write(json_line(row))

"""Texts that the user can copy: display filters of Wireshark, and command lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from analysis.display.exchange_tree import display_filter
from analysis.input.filters import Filter
from analysis.sql.expressions import literal
from dissector.exchanges.exchange import Exchange

Command: TypeAlias = Callable[[str, Filter | None], str]
"""From a command and a filter to the command line on the same capture."""
Titled: TypeAlias = tuple[str, str]
"""A title and a text."""


def exchange_texts(exchange: Exchange, command: Command | None) -> Iterator[Titled]:
    """Texts for an exchange."""
    packet = exchange.request_packet or exchange.response_packet
    own = f"show --connection {exchange.connection_id} --packet {packet}"
    yield "this exchange in Wireshark: display filter", display_filter(exchange)
    # Wireshark numbers the connections of each file from 0.
    stream = f"tcp.stream == {exchange.connection_id}"
    yield "its connection in Wireshark, if the capture is one file", stream
    if command is not None:
        yield "this exchange", command(own, None)
        yield "its packets", command(f"{own} --timeline", None)


def list_texts(chosen: Filter, command: Command | None) -> Iterator[Titled]:
    """Texts for the selected exchanges."""
    if command is None:
        return
    yield "the packets of these exchanges", command("cut -o cut.pcapng", chosen)
    yield "the rows of this list", command("export --table exchanges", chosen)
    yield "this screen", command("browse", chosen)


def condition(name: str, value: object) -> str:
    """SQL: a column of exchanges has a value."""
    if name == "time" or hasattr(value, "year"):
        column = "coalesce(request_time, response_time)" if name == "time" else name
        return f"{column} = {literal(str(value).removesuffix('+00:00'))}"  # with all digits
    if value is None:  # an exchange without an error may have the error NONE
        return "coalesce(error_count, 0) = 0" if name == "error" else f"{name} is null"
    if isinstance(value, list):
        return f"list_contains({name}, {literal(value[0])})" if value else f"len({name}) = 0"
    return f"{name} = {literal(value) if isinstance(value, str) else value}"

"""Show: one exchange as a tree, every field with its value and the offset of its first byte.

Offsets count from the start of the message, behind its 4-byte size. Where a message contradicts its
definition, the place is marked and the bytes from there on follow as they are.

Secrets do not come out unless asked for: fields that hold credentials, values of configurations
(but those that the broker calls not sensitive), forwarded requests, which may hold either, and
bytes that nobody can read in messages where any of these may stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Final

from rich.text import Text

from analysis.terminal import counted, printable, time_text
from dissector.exchange import Exchange
from dissector.protocol import catalog
from dissector.protocol.explain import Explained, Explanation
from dissector.protocol.notation import Direction, Field

REDACTED: Final = "[redacted]"

SECRET_ROLES: Final = frozenset({"secret", "config_value", "envelope_request", "envelope_response"})

TOPICS: Final = 5
"""Names of topics that are shown above the messages, where newer versions have ids only."""
HEX_BYTES: Final = 24
"""Bytes of a field that are shown."""
TEXT_LENGTH: Final = 200
"""Characters of a string that are shown."""
DUMP_BYTES: Final = 4096
"""Bytes that are shown where a message cannot be read."""

LARGEST_VERSION: Final = 31
"""Of an API that is not known. In a SASL token that is taken for a request, text stands where the
version would, and no printable character is below 32."""


def tree(exchange: Exchange, *, secrets: bool = False) -> Iterator[Text]:
    """The lines of one exchange. `secrets`: show them."""
    yield from _head(exchange)
    for direction in Direction:
        yield from _message(exchange, direction, secrets)


def _head(exchange: Exchange) -> Iterator[Text]:
    version = "" if exchange.api_version is None else f" version {exchange.api_version}"
    latency = "" if exchange.latency_ms is None else f" after {exchange.latency_ms:,.3f} ms"
    yield Text.assemble(
        (_api(exchange) + version, "bold"), f", {exchange.status.replace('_', ' ')}{latency}"
    )
    facts = {
        "client": _end(exchange.client_ip, exchange.client_port),
        "broker": _end(exchange.broker_ip, exchange.broker_port),
        "connection": exchange.connection_id,
        "correlation id": exchange.correlation_id,
        "client id": exchange.client_id and _quoted(exchange.client_id),
    }
    said = (f"{name} {value}" for name, value in facts.items() if value is not None)
    yield Text(", ".join(said))
    if exchange.topics:
        names = ", ".join(map(printable, exchange.topics[:TOPICS]))
        count = len(exchange.topics)
        beyond = f", and {count - TOPICS:,} more" if count > TOPICS else ""
        yield Text(f"{counted(count, 'topic')}: {names}{beyond}")
    if exchange.throttle_time_ms:
        yield Text(f"throttled for {exchange.throttle_time_ms:,} ms", "red")
    if exchange.error_count:
        error = exchange.error or f"error {exchange.error_code}"
        others = f", and {exchange.error_count - 1:,} more" if exchange.error_count > 1 else ""
        yield Text(f"error {printable(error)}{others}", "red")


def _message(exchange: Exchange, direction: Direction, secrets: bool) -> Iterator[Text]:
    """One of the two messages: a heading, then a line a field."""
    if direction == Direction.REQUEST:
        name, frame, size = "Request", exchange.request_frame, exchange.request_bytes
        packet, time = exchange.request_packet, exchange.request_time
    else:
        name, frame, size = "Response", exchange.response_frame, exchange.response_bytes
        packet, time = exchange.response_packet, exchange.response_time
    if frame is None or size is None or time is None:
        why = "none is sent" if exchange.status == "no_reply_expected" else "not in the capture"
        yield Text.assemble((f"\n{name}", "bold"), f": {why}")
        return
    cut = "" if len(frame) + 4 >= size else f", {len(frame) + 4:,} of them in the capture"
    yield Text.assemble(
        (f"\n{name}", "bold"),
        f": packet {packet}, {time_text(time)} UTC, {counted(size, 'byte')}{cut}",
    )
    explanation = exchange.explain(direction) or Explanation()
    yield from _fields(explanation, secrets)
    rest = frame[explanation.end :]
    if rest and not secrets and _may_hold_secrets(exchange, direction):
        yield _line(explanation.end, f"{counted(len(rest), 'byte')} {REDACTED}", "yellow")
    elif rest:
        yield from _dump(rest, explanation.end)


def _fields(explanation: Explanation, secrets: bool) -> Iterator[Text]:
    events = [event for event in explanation.events if event.type != "tags" or event.value]
    open_paths = {
        event.path.rpartition(".")[0]
        for event in events
        if "is_sensitive" in event.roles and event.value is False
    }
    width = max((2 * event.depth + len(_name(event)) for event in events), default=0)
    for event in events:
        hidden = not secrets and not SECRET_ROLES.isdisjoint(event.roles)
        if "config_value" in event.roles and _is_within(event.path, open_paths):
            hidden = False
        value = REDACTED if hidden and event.value is not None else _value(event)
        label = f"{'  ' * event.depth}{_name(event)}"
        yield Text.assemble(
            (f"{event.offset:>8}  ", "dim"),
            f"{label:<{width}}  " if value else label,
            (value, _style(event, hidden)),
            no_wrap=True,
        )
    if explanation.error is not None:
        error = explanation.error
        where = f"{printable(error.path)}: " if error.path else ""
        yield _line(error.offset, f"! {where}{printable(error.detail)}", "bold red")


def _is_within(path: str, parents: set[str]) -> bool:
    """Whether a struct that holds the field, at any height, is one of `parents`."""
    while path:
        path = path.rpartition(".")[0]
        if path in parents:
            return True
    return False


def _name(event: Explained) -> str:
    return event.path if event.path.startswith("header.") else event.name


def _value(event: Explained) -> str:
    value = event.value
    if value is None:
        return "null"
    if event.type == "{}":
        return ""
    if event.type.startswith("["):
        return f"[{value}]"
    if isinstance(value, bytes):
        shown = value[:HEX_BYTES].hex()
        return f"{shown}… ({len(value):,} bytes)" if len(value) > HEX_BYTES else shown or "(empty)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if event.type == "string":
        return _quoted(value)
    if "error_code" in event.roles:
        return f"{value} {catalog.error_name(value) or ''}".rstrip()
    if event.path == "header.api_key":
        return f"{value} {catalog.api_name(value) or ''}".rstrip()
    return str(value)


def _style(event: Explained, hidden: bool) -> str:
    if hidden or event.value is None:
        return "yellow" if hidden else "dim"
    return "red" if "error_code" in event.roles and event.value else "cyan"


def _quoted(text: str) -> str:
    """A string in quotes; what does not print is escaped."""
    if len(text) <= TEXT_LENGTH:
        return printable(json.dumps(text, ensure_ascii=False))
    shown = json.dumps(text[:TEXT_LENGTH], ensure_ascii=False)
    return f"{printable(shown)}… ({len(text):,} characters)"


def _line(offset: int, text: str, style: str) -> Text:
    return Text.assemble((f"{offset:>8}  ", "dim"), (text, style), no_wrap=True)


def _dump(data: bytes, offset: int) -> Iterator[Text]:
    """Bytes as they are: sixteen a line, in hex and as ASCII."""
    for at in range(0, min(len(data), DUMP_BYTES), 16):
        row = data[at : at + 16]
        ascii = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield _line(offset + at, f"{row.hex(' '):<47}  {ascii}", "")
    if len(data) > DUMP_BYTES:
        yield _line(offset + DUMP_BYTES, f"{len(data) - DUMP_BYTES:,} bytes more", "dim")


def _may_hold_secrets(exchange: Exchange, direction: Direction) -> bool:
    """Whether bytes that cannot be read may be secrets: where the API has such fields, and where
    it is not even known that this is a message of some API."""
    api_key, version = exchange.api_key, exchange.api_version
    if api_key is None or version is None:
        return True
    if catalog.api_name(api_key) is None:
        return not 0 <= version <= LARGEST_VERSION
    return _has_secrets(api_key, direction)


@cache
def _has_secrets(api_key: int, direction: Direction) -> bool:
    layouts = (catalog.layout(api_key, direction, each) for each in catalog.versions(api_key))
    return any(_any_secret(layout.fields) for layout in layouts)


def _any_secret(fields: tuple[Field, ...]) -> bool:
    return any(
        not SECRET_ROLES.isdisjoint(each.roles) or _any_secret(each.fields) for each in fields
    )


def _api(exchange: Exchange) -> str:
    if exchange.api is not None:
        return printable(exchange.api)
    return "Unknown API" if exchange.api_key is None else f"Unknown API {exchange.api_key}"


def _end(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"

"""One exchange as a tree: each field with its value and the offset of its first byte.

Offsets count from the start of the message, after its 4-byte size. If a message contradicts its
definition, the position is marked, and the remaining bytes follow as a dump. Surplus bytes follow a
line with their number.

Structures inside the bytes of a field follow the field, one level deeper; without offsets if they
were compressed. Secrets (`dissector.secrets`) are hidden by default. For bytes that may be secret,
the tree shows their number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rich.text import Text

from analysis.display.presentation import names
from analysis.display.terminal import EXCERPT, counted, excerpt, printable, time_text, zone_name
from analysis.names.addresses import endpoint
from dissector.arrays import value
from dissector.embedded import ERROR, NOWHERE, TEXT
from dissector.embedded.records import Decode
from dissector.errors import DecodeError
from dissector.exchanges.exchange import Exchange
from dissector.protocol import registry
from dissector.protocol.body_end import body_end
from dissector.protocol.explain import Explained, Explanation
from dissector.protocol.limits import FEW, is_accepted
from dissector.protocol.notation import Direction
from dissector.redaction import REDACTED
from dissector.secrets import hidden, may_be_secret, redacted_bytes

if TYPE_CHECKING:
    from analysis.timeline.exchange import Event

WAIT: Final = 10 * 10**6
"""ns without a packet that a timeline points out."""
TOPICS: Final = 5
"""Maximum number of topic names above the messages; newer versions have only ids in messages."""
OFFSET: Final = 10
"""Columns of an offset, with the blanks after it."""
INDENT: Final = 2
"""Columns for each level of depth."""
HEX_BYTES: Final = 24
"""Maximum number of bytes of a field."""
WORDS_LENGTH: Final = 400
"""Maximum number of characters of a text."""
HIDDEN_BYTE: Final = -1
"""Stands for a byte of a secret."""
DUMP_BYTES: Final = 4096
"""Maximum number of bytes of a dump."""
NOT_EXPLAINED: Final[Mapping[Direction, Explanation | None]] = MappingProxyType({})
SCREEN_FIELDS: Final = 50_000
"""Maximum fields of a message on a screen. Metadata of 200,000 partitions has 2.5 million."""


@value
class Line:
    """A line of a tree."""

    text: Text
    direction: Direction | None = None
    """The message that the line belongs to; None for the lines above both messages."""
    event: Explained | None = None
    """The field; None for a heading, and for bytes that were not decoded."""


def tree(
    exchange: Exchange, *, secrets: bool = False, decode: Decode | None = None,
    most: int | None = None,
) -> Iterator[Text]:  # fmt: skip
    """The texts of `tree_lines`."""
    return (line.text for line in tree_lines(exchange, secrets=secrets, decode=decode, most=most))


def tree_lines(
    exchange: Exchange, *, secrets: bool = False, decode: Decode | None = None,
    most: int | None = None, explained: Mapping[Direction, Explanation | None] = NOT_EXPLAINED,
) -> Iterator[Line]:  # fmt: skip
    """The lines of one exchange. `secrets`: show them. `decode`: see `Exchange.unfold`. `most`:
    fields of a message that are shown; None: all. `explained`: results of `Exchange.explain`."""
    yield from map(Line, _head(exchange))
    for direction in Direction:
        known = explained.get(direction)
        yield from _message(exchange, direction, known, secrets, decode, most)


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
    texts = (f"{name} {value}" for name, value in facts.items() if value is not None)
    yield Text(", ".join(texts))
    yield Text(f"Wireshark: {display_filter(exchange)}")
    if exchange.topics:
        topics = ", ".join(map(excerpt, exchange.topics[:TOPICS]))
        count = len(exchange.topics)
        beyond = f", and {count - TOPICS:,} more" if count > TOPICS else ""
        yield Text(f"{counted(count, 'topic')}: {topics}{beyond}")
    if exchange.throttle_time_ms:
        yield Text(f"throttled for {exchange.throttle_time_ms:,} ms", "red")
    if exchange.error_count:
        error = exchange.error or str(exchange.error_code)
        others = f", and {exchange.error_count - 1:,} more" if exchange.error_count > 1 else ""
        yield Text(f"error {printable(error)}{others}", "red")


def concealed(exchange: Exchange, direction: Direction, explanation: Explanation) -> frozenset[str]:
    """Paths of the secret fields of a message. `explanation`: of this message, also unfolded."""
    is_malformed = _contradicts_definition(exchange, direction, explanation)
    return hidden(explanation.events, exchange.api_key, direction, is_malformed=is_malformed)


def conceals_unread(exchange: Exchange, direction: Direction, explanation: Explanation) -> bool:
    """Whether the bytes after the last field may be secret. `explanation`: of this message."""
    if _contradicts_definition(exchange, direction, explanation):
        return True
    unread = (exchange.frame(direction) or b"")[explanation.end :]
    api_key, version = exchange.api_key, exchange.api_version
    return may_be_secret(unread, api_key, version, direction, explanation.events)


def _contradicts_definition(
    exchange: Exchange, direction: Direction, explanation: Explanation
) -> bool:
    """Whether a message has an error, and cannot be one that the capture cut; or more surplus
    bytes than clients append."""
    if explanation.error is None:
        return explanation.surplus > FEW
    request = None
    frame, size = exchange.request_frame or b"", exchange.request_bytes or 0
    if direction == Direction.RESPONSE:
        request = (exchange.api_key or 0, exchange.api_version or 0)
        frame, size = exchange.response_frame or b"", exchange.response_bytes or 0
    if len(frame) + 4 >= size:
        return True
    try:
        end = body_end(frame, size - 4, request)
    except DecodeError:
        return True
    return not is_accepted(direction, end, size - 4 - end)


def display_filter(exchange: Exchange) -> str:
    """The display filter of Wireshark for the first packets of both messages, in their file."""
    packets = (exchange.request_packet, exchange.response_packet)
    numbers = sorted({packet for packet in packets if packet is not None})
    return f"frame.number in {{{', '.join(map(str, numbers))}}}"


def timeline(exchange: Exchange, events: Sequence[Event]) -> Iterator[Text]:
    """The packets of an exchange: ms since its first byte, number, sender, meaning."""
    from analysis.timeline.exchange import span

    start, _ = span(exchange)
    yield Text.assemble(("\nTimeline", "bold"), ": ms, packet, sender, content")
    width = max((len(str(event.packet.number)) for event in events), default=0)
    before: int | None = None
    for event in events:
        packet = event.packet
        if before is not None and packet.time - before >= WAIT:
            yield Text(f"{'':>14}{(packet.time - before) / 1e6:,.3f} ms without a packet", "dim")
        before = packet.time
        sender = "client" if packet.is_from_client else "broker"
        yield Text.assemble(
            f"{(packet.time - start) / 1e6:>12,.3f}  {packet.number:>{width}}  {sender}  ",
            (event.text, "red" if event.is_problem else ""),
        )


def _message(
    exchange: Exchange, direction: Direction, explanation: Explanation | None, secrets: bool,
    decode: Decode | None, most: int | None,
) -> Iterator[Line]:  # fmt: skip
    """The request or the response: a heading, then a line for each field."""
    if direction == Direction.REQUEST:
        name, frame, size = "Request", exchange.request_frame, exchange.request_bytes
        packet, time = exchange.request_packet, exchange.request_time
    else:
        name, frame, size = "Response", exchange.response_frame, exchange.response_bytes
        packet, time = exchange.response_packet, exchange.response_time
    if frame is None or size is None or time is None:
        reason = "none is sent" if exchange.status == "no_reply_expected" else "not in the capture"
        yield Line(Text.assemble((f"\n{name}", "bold"), f": {reason}"), direction)
        return
    cut = "" if len(frame) + 4 >= size else f", {len(frame) + 4:,} of them in the capture"
    heading = Text.assemble(
        (f"\n{name}", "bold"),
        f": packet {packet}, {time_text(time)} {zone_name()}, {counted(size, 'byte')}{cut}",
    )
    yield Line(heading, direction)
    unfolded = exchange.unfold(direction, decode=decode, explanation=explanation)
    explanation = unfolded or Explanation()
    hides = frozenset() if secrets else concealed(exchange, direction, explanation)
    for text, event in _fields(explanation, hides, exchange.topic_names, most):
        yield Line(text, direction, event)
    conceals = not secrets and conceals_unread(exchange, direction, explanation)
    for text in _undecoded(explanation, frame, conceals):
        yield Line(text, direction)


def _undecoded(explanation: Explanation, frame: bytes, conceals: bool) -> Iterator[Text]:
    """The bytes after the last field."""
    unread, end = frame[explanation.end :], explanation.end
    if explanation.surplus:
        surplus = counted(explanation.surplus, "surplus byte")
        yield _line(end, f"! {surplus} after the last field", "yellow")
    if unread and conceals:
        yield _line(end, redacted_bytes(unread), "yellow")
    elif unread:
        yield from _dump(unread, end)


def _fields(
    explanation: Explanation, hides: frozenset[str], topics: Mapping[str, str], most: int | None
) -> Iterator[tuple[Text, Explained | None]]:
    """A line for each field, `most` at most, and for the error that ends the message. `hides`:
    paths."""
    fields = [event for event in explanation.events if event.type != "tags" or event.value]
    events = fields[:most]
    width = max((INDENT * event.depth + len(_name(event)) for event in events), default=0)
    for event in events:
        if event.type == ERROR:
            text = f"{' ' * INDENT * event.depth}! {printable(event.value)}"
            yield _line(event.offset, text, "bold red"), event
            continue
        value = REDACTED if event.path in hides else _value(event)
        if "topic_id" in event.roles and event.value in topics:
            value = f"{value} {excerpt(topics[event.value])}"
        label = f"{' ' * INDENT * event.depth}{_name(event)}"
        line = Text.assemble(
            (_offset(event.offset), "dim"),
            f"{label:<{width}}  " if value else label,
            (value, _style(event, event.path in hides)),
            no_wrap=True,
        )
        yield line, event
    if len(events) < len(fields):
        hidden = f"… {len(fields) - len(events):,} more fields; a pipe, or --format json, has all"
        yield _line(fields[len(events)].offset, hidden, "yellow"), None
    if explanation.error is not None:
        error = explanation.error
        where = f"{printable(error.path)}: " if error.path else ""
        yield _line(error.offset, f"! {where}{printable(error.detail)}", "bold red"), None


def _offset(offset: int) -> str:
    return f"{'' if offset == NOWHERE else offset:>{OFFSET - 2}}  "


def _name(event: Explained) -> str:
    header = f"header.{event.name}"
    return excerpt(header if event.path.endswith(header) else event.name)


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
    if event.type == TEXT:
        beyond = f"… ({len(value):,} characters)" if len(value) > WORDS_LENGTH else ""
        return printable(value[:WORDS_LENGTH]) + beyond
    if "error_code" in event.roles:
        return f"{value} {registry.error_name(value) or ''}".rstrip()
    if event.name == "api_key":
        return f"{value} {registry.api_name(value) or ''}".rstrip()
    return str(value)


def _style(event: Explained, hidden: bool) -> str:
    if hidden or event.value is None:
        return "yellow" if hidden else "dim"
    return "red" if "error_code" in event.roles and event.value else "cyan"


def _quoted(text: str) -> str:
    """A string in quotes, with non-printable characters escaped."""
    if len(text) <= EXCERPT:
        return printable(json.dumps(text, ensure_ascii=False))
    shown = json.dumps(text[:EXCERPT], ensure_ascii=False)
    return f"{printable(shown)}… ({len(text):,} characters)"


def _line(offset: int, text: str, style: str) -> Text:
    return Text.assemble((_offset(offset), "dim"), (text, style), no_wrap=True)


def hex_rows(values: Sequence[int], columns: int) -> Iterator[tuple[int, str, str]]:
    """The lines of a hex dump: position of the first byte, bytes in hex, and as ASCII.

    `values`: bytes, or `HIDDEN_BYTE`. `columns`: bytes per line.
    """
    for at in range(0, len(values), columns):
        row = values[at : at + columns]
        hexadecimal = " ".join("··" if byte == HIDDEN_BYTE else f"{byte:02x}" for byte in row)
        yield at, hexadecimal, "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)


def _dump(data: bytes, offset: int) -> Iterator[Text]:
    """A hex dump: sixteen bytes per line, in hex and as ASCII."""
    for at, hexadecimal, ascii in hex_rows(data[:DUMP_BYTES], 16):
        yield _line(offset + at, f"{hexadecimal:<47}  {ascii}", "")
    if len(data) > DUMP_BYTES:
        yield _line(offset + DUMP_BYTES, f"{len(data) - DUMP_BYTES:,} bytes more", "dim")


def _api(exchange: Exchange) -> str:
    if exchange.api is not None:
        return printable(exchange.api)
    return "Unknown API" if exchange.api_key is None else f"Unknown API {exchange.api_key}"


def _end(ip: str, port: int) -> str:
    return printable(names().shown(endpoint(ip, port)))

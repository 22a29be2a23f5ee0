"""One exchange as JSON: its columns, and the fields of both messages.

A struct is an object, an array is a list. Offsets are left out. Bytes are hexadecimal. Structures
inside the bytes of a field are the value of the field; of record batches, lines of text. Secrets
are hidden as in `exchange_tree`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from analysis.display.exchange_tree import concealed, conceals_unread, display_filter
from analysis.display.terminal import utc_text
from analysis.timeline.exchange import Event
from dissector.embedded import ERROR, TEXT
from dissector.embedded.records import Decode
from dissector.exchanges.exchange import Exchange
from dissector.protocol.explain import Explained, Explanation
from dissector.protocol.notation import Direction
from dissector.redaction import REDACTED
from dissector.secrets import redacted_bytes

_MESSAGES: Final = frozenset({"request_frame", "response_frame", "topic_names"})


def as_json(
    exchange: Exchange, *, secrets: bool = False, decode: Decode | None = None
) -> dict[str, Any]:
    """The exchange with the fields of its messages. `secrets`: show them.

    `decode`: see `Exchange.unfold`.
    """
    row: dict[str, Any] = {}
    for each in fields(exchange):
        value = getattr(exchange, each.name)
        if each.name not in _MESSAGES:
            is_time = each.name.endswith("_time") and value is not None
            row[each.name] = utc_text(value) if is_time else value
    row["display_filter"] = display_filter(exchange)
    for direction in Direction:
        row[direction.name.lower()] = _message(exchange, direction, secrets, decode)
    return row


def timeline_json(event: Event) -> dict[str, Any]:
    """A packet of a timeline."""
    packet = event.packet
    return {
        "time": utc_text(packet.time), "capture": packet.capture, "packet": packet.number,
        "sender": "client" if packet.is_from_client else "broker", "content": event.text,
        "is_problem": event.is_problem,
    }  # fmt: skip


def _message(
    exchange: Exchange, direction: Direction, secrets: bool, decode: Decode | None
) -> dict[str, Any] | None:
    frame = exchange.frame(direction)
    if frame is None:
        return None
    explanation = exchange.unfold(direction, decode=decode) or Explanation()
    hides = frozenset() if secrets else concealed(exchange, direction, explanation)
    message: dict[str, Any] = {"fields": _struct(explanation, hides, exchange.topic_names)}
    if explanation.error is not None:
        message["error"] = str(explanation.error)
    unread = frame[explanation.end :]
    if unread:
        is_secret = not secrets and conceals_unread(exchange, direction, explanation)
        message["unread"] = redacted_bytes(unread) if is_secret else unread.hex()
    return message


def _struct(explanation: Explanation, hides: frozenset[str], topics: Mapping[str, str]) -> Any:
    events = [event for event in explanation.events if event.type != "tags" or event.value]
    result: dict[str, Any] = {}
    for group in _groups(events):
        is_header = group[0].path.startswith("header.")
        part = result.setdefault("header", {}) if is_header else result
        _set(part, group[0].name, _value(group, hides, topics))
    return result


def _groups(events: Sequence[Explained]) -> Iterator[Sequence[Explained]]:
    """Each outermost event with the events inside it."""
    starts = [index for index, event in enumerate(events) if event.depth == events[0].depth]
    for start, end in zip(starts, [*starts, len(events)][1:], strict=True):
        yield events[start:end]


def _value(group: Sequence[Explained], hides: frozenset[str], topics: Mapping[str, str]) -> Any:
    event, inside = group[0], group[1:]
    if event.path in hides:
        return REDACTED
    if not inside:
        value = event.value
        if value is not None and event.type[0] in "[{":
            return [] if event.type.startswith("[") else {}
        if "topic_id" in event.roles and value in topics:
            return {"id": value, "name": topics[value]}
        return value.hex() if isinstance(value, bytes) else value
    children = [(each[0], _value(each, hides, topics)) for each in _groups(inside)]
    elements = [value for child, value in children if child.name.startswith("[")]
    if event.type != TEXT and len(elements) == len(children):
        return elements
    result: dict[str, Any] = {}
    if event.type not in ("{}", "tags") and event.value is not None and event.type[0] != "[":
        result["description"] = event.value
    if event.type == TEXT and elements:
        result["records" if event.name.startswith("[") else "batches"] = elements
        children = [each for each in children if not each[0].name.startswith("[")]
    for child, value in children:
        _set(result, "error" if child.type == ERROR else child.name, value)
    return result


def _set(result: dict[str, Any], name: str, value: Any) -> None:
    """Set a field; fields that repeat, such as record headers, become a list."""
    if name not in result:
        result[name] = value
    elif isinstance(result[name], list):
        result[name].append(value)
    else:
        result[name] = [result[name], value]

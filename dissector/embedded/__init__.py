"""What travels as bytes inside the fields of a message, made readable in place.

inside       `Contents`: what the bytes of one field hold
records      record batches, and their records
sasl         tokens of SASL mechanisms
telemetry    OTLP metrics

`unfold` takes the events of a message, and puts behind each field that holds something the fields
of what it holds, one step deeper: the protocols of groups, principals, forwarded requests and their
answers, records, tokens, metrics. Bytes that nothing fits stay as they are. The event of a field
that was unfolded says in words what it holds, and has no roles any more: what of it is a secret,
its fields say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dissector.embedded.contents import NOWHERE, TEXT, Contents
from dissector.embedded.records import batches
from dissector.embedded.sasl import token
from dissector.embedded.telemetry import metrics
from dissector.protocol import registry
from dissector.protocol.explain import EnclosingFields, Explained, Explanation
from dissector.protocol.message import explain_request, explain_response
from dissector.protocol.structures import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    recognise,
    versioned_structure,
)

__all__ = ["ERROR", "NOWHERE", "TEXT", "Known", "explain_token", "unfold"]

ERROR: Final = "error"
"""Type of an event that says what is wrong with what a field holds."""


@dataclass(frozen=True, slots=True)
class MessageContext:
    """What the bytes of a message do not tell."""

    mechanism: str | None = None
    """SASL mechanism of the connection."""
    asked: bytes | None = None
    """The request that a response answers."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """Names of topics by id."""


def unfold(explanation: Explanation, known: MessageContext) -> Explanation:
    """The same explanation, with what fields hold behind each of them."""
    unfolding = _Unfolding(known)
    unfolding.add(explanation.events)
    return replace(explanation, events=unfolding.events)


def explain_token(data: bytes, known: MessageContext) -> Explanation:
    """A SASL token that has no header, as the one field of a message."""
    roles = ("secret", "sasl_token")
    token = Explained("token", "token", "bytes", data, 0, len(data), 0, roles)
    return unfold(Explanation([token], end=len(data)), known)


class _Unfolding:
    """Events, unfolded as they are added."""

    def __init__(self, known: MessageContext) -> None:
        self.events: list[Explained] = []
        self.known = known
        self.beside = EnclosingFields()

    def add(self, events: Sequence[Explained]) -> None:
        """Events of one message or structure."""
        self.beside.add(events)
        for event in events:
            inside = self._inside(event)
            if inside is None:
                self.events.append(event)
                continue
            self.events.append(replace(event, type=TEXT, value=inside.name, roles=()))
            self.add(list(_placed(event, inside)))

    def _inside(self, event: Explained) -> Contents | None:
        if not isinstance(event.value, bytes) or not event.value:
            return None
        readers = (_READERS[role] for role in event.roles if role in _READERS)
        return next(filter(None, (reader(self, event, event.value) for reader in readers)), None)

    def _structure(self, event: Explained, value: bytes) -> Contents | None:
        of = (self.beside.of(event.path, role) for role in ("protocol_type", "protocol_name"))
        found = recognise(event.roles, value, *of)
        if found is None:
            return None
        candidate, read = found
        # What this one turned out to be of, those within it are of, too.
        self.beside.set(event.path, "protocol_type", candidate.protocol_type)
        events = versioned_structure(read.name, value).explain(value).events
        return Contents(f"{read.name} version {read.version}", events)

    def _request(self, event: Explained, value: bytes) -> Contents | None:
        found = explain_request(value)
        if _carried(found) is not None:  # an envelope in an envelope, and so on: Kafka sends none
            return None
        return _message("request", found, value, *_kind(value))

    def _response(self, event: Explained, value: bytes) -> Contents | None:
        asked = _carried(explain_request(self.known.asked or b""))
        if asked is None:
            return None
        kind = _kind(asked)
        return _message("response", explain_response(value, *kind), value, *kind)

    def _token(self, event: Explained, value: bytes) -> Contents | None:
        return token(value, self.known.mechanism)

    def _batches(self, event: Explained, value: bytes) -> Contents:
        topic_id = self.beside.of(event.path, "topic_id")
        names = {METADATA_TOPIC_ID: METADATA_TOPIC, **self.known.topics}
        return batches(value, names.get(topic_id) or self.beside.of(event.path, "topic"))

    def _metrics(self, event: Explained, value: bytes) -> Contents | None:
        return metrics(value, self.beside.of(event.path, "compression") or 0)


_READERS: Final[Mapping[str, Callable[[_Unfolding, Explained, bytes], Contents | None]]] = {
    "consumer_subscription": _Unfolding._structure,
    "consumer_assignment": _Unfolding._structure,
    "subscription_user_data": _Unfolding._structure,
    "assignment_user_data": _Unfolding._structure,
    "principal": _Unfolding._structure,
    "envelope_request": _Unfolding._request,
    "envelope_response": _Unfolding._response,
    "records": _Unfolding._batches,
    "sasl_token": _Unfolding._token,
    "telemetry": _Unfolding._metrics,
}
"""What reads the bytes of a role."""


def _placed(outer: Explained, inside: Contents) -> list[Explained]:
    """The events of what a field holds, as they stand in the message around it."""
    assert isinstance(outer.value, bytes)
    # A field's own length, and a tag, come before its bytes.
    start = outer.offset + outer.length - len(outer.value)

    def place(event: Explained) -> Explained:
        return replace(
            event,
            path=f"{outer.path}.{event.path}",
            offset=NOWHERE if NOWHERE in (outer.offset, event.offset) else start + event.offset,
            depth=outer.depth + 1 + event.depth,
        )

    events = [*map(place, inside.events)]
    if inside.error is not None:
        left = outer.value[inside.end :]
        wrong = Explained("!", "!", ERROR, str(inside.error), inside.error.offset, 0, 0)
        rest = Explained("rest", "rest", "bytes", left, inside.end, len(left), 0, ("secret",))
        events += [place(wrong), place(rest)]
    return events


def _message(
    what: str, explained: Explanation, data: bytes, api_key: int, version: int
) -> Contents:
    name = registry.api_name(api_key) or f"API {api_key}"
    events, end = explained.events, explained.end
    if explained.surplus:
        surplus = data[end:]
        size = len(surplus)
        event = Explained("surplus", "surplus", "bytes", surplus, end, size, 0, ("secret",))
        events = [*events, event]
    return Contents(f"{name} version {version} {what}", events, explained.error, end)


def _carried(request: Explanation) -> bytes | None:
    """The request that an Envelope carries; None where this is none."""
    for event in request.events:
        if "envelope_request" in event.roles and event.value:
            return bytes(event.value)
    return None


def _kind(request: bytes) -> tuple[int, int]:
    """API and version of a request; -1 where it is too short to tell."""
    if len(request) < 4:
        return -1, -1
    return int.from_bytes(request[:2], signed=True), int.from_bytes(request[2:4], signed=True)

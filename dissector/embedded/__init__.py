"""Decodes structures that the fields of a message contain as bytes.

contents     `Contents`: the decoded content of one field
records      record batches and their records
sasl         tokens of SASL mechanisms
telemetry    OTLP metrics

`unfold` takes the events of a message. After each field with a known structure it inserts the
fields of that structure, one level deeper: group protocols, principals, forwarded requests and
their responses, records, tokens, metrics. Other bytes stay as they are. The event of an unfolded
field describes its content in words and has no roles; roles of the inserted fields mark secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from dissector.arrays import value
from dissector.embedded.contents import NOWHERE, TEXT, Contents
from dissector.embedded.records import Decode, batches
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

__all__ = ["ERROR", "NOWHERE", "TEXT", "MessageContext", "explain_token", "unfold"]

ERROR: Final = "error"
"""Type of an event that reports an error in the content of a field."""


@value
class MessageContext:
    """Information that is not in the message itself."""

    mechanism: str | None = None
    """SASL mechanism of the connection."""
    request: bytes | None = None
    """The request of a response."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """Names of topics by id."""
    decode: Decode | None = None
    """Decodes keys and values of records by a schema."""


def unfold(explanation: Explanation, known: MessageContext) -> Explanation:
    """The explanation, with the content of fields inserted after them."""
    if not any(isinstance(event.value, bytes) for event in explanation.events):
        return explanation  # such as Metadata, which may have millions of fields
    unfolding = _Unfolding(known)
    unfolding.add(explanation.events)
    return replace(explanation, events=unfolding.events)


def explain_token(data: bytes, known: MessageContext) -> Explanation:
    """Explain a SASL token without header as the only field of a message."""
    roles = ("secret", "sasl_token")
    token = Explained("token", "token", "bytes", data, 0, len(data), 0, roles)
    return unfold(Explanation([token], end=len(data)), known)


class _Unfolding:
    """A list of events that unfolds events as they are added."""

    def __init__(self, known: MessageContext) -> None:
        self.events: list[Explained] = []
        self.known = known
        self.enclosing = EnclosingFields()

    def add(self, events: Sequence[Explained]) -> None:
        """Add the events of a message or structure."""
        self.enclosing.add(events)
        for event in events:
            inside = self._contents_of(event)
            if inside is None:
                self.events.append(event)
                continue
            self.events.append(replace(event, type=TEXT, value=inside.name, roles=()))
            self.add(list(_in_message(event, inside)))

    def _contents_of(self, event: Explained) -> Contents | None:
        if not isinstance(event.value, bytes) or not event.value:
            return None
        readers = (_READERS[role] for role in event.roles if role in _READERS)
        return next(filter(None, (reader(self, event, event.value) for reader in readers)), None)

    def _structure(self, event: Explained, value: bytes) -> Contents | None:
        of = (self.enclosing.of(event.path, role) for role in ("protocol_type", "protocol_name"))
        recognised = recognise(event.roles, value, *of)
        if recognised is None:
            return None
        candidate, read = recognised
        # The structures inside belong to the same protocol.
        self.enclosing.set(event.path, "protocol_type", candidate.protocol_type)
        events = versioned_structure(read.name, value).explain(value).events
        return Contents(f"{read.name} version {read.version}", events)

    def _request(self, event: Explained, value: bytes) -> Contents | None:
        request = explain_request(value)
        if _envelope_request(request) is not None:  # Kafka does not nest envelopes
            return None
        return _message("request", request, value, *_kind(value))

    def _response(self, event: Explained, value: bytes) -> Contents | None:
        asked = _envelope_request(explain_request(self.known.request or b""))
        if asked is None:
            return None
        kind = _kind(asked)
        return _message("response", explain_response(value, *kind), value, *kind)

    def _token(self, event: Explained, value: bytes) -> Contents | None:
        return token(value, self.known.mechanism)

    def _batches(self, event: Explained, value: bytes) -> Contents:
        topic_id = self.enclosing.of(event.path, "topic_id")
        names = {METADATA_TOPIC_ID: METADATA_TOPIC, **self.known.topics}
        topic = names.get(topic_id) or self.enclosing.of(event.path, "topic")
        if "secret" in event.roles:  # of a KRaft snapshot, whatever the name
            topic = METADATA_TOPIC
        return batches(value, topic, self.known.decode)

    def _metrics(self, event: Explained, value: bytes) -> Contents | None:
        return metrics(value, self.enclosing.of(event.path, "compression") or 0)


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
"""Reader of the bytes of a role."""


def _in_message(outer: Explained, inside: Contents) -> list[Explained]:
    """The events of a field's content, with path, offset and depth in the enclosing message."""
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
        # The fields may be misaligned: see `dissector.secrets`.
        events = [
            replace(each, roles=(*each.roles, "secret")) if each.is_body_value else each
            for each in events
        ]
        left = outer.value[inside.end :]
        wrong = Explained("!", "!", ERROR, str(inside.error), inside.error.offset, 0, 0)
        remainder = Explained("rest", "rest", "bytes", left, inside.end, len(left), 0, ("secret",))
        events += [place(wrong), place(remainder)]
    return events


def _message(
    direction: str, explained: Explanation, data: bytes, api_key: int, version: int
) -> Contents:
    name = registry.api_name(api_key) or f"API {api_key}"
    events, end = explained.events, explained.end
    if explained.surplus:
        surplus = data[end:]
        size = len(surplus)
        event = Explained("surplus", "surplus", "bytes", surplus, end, size, 0, ("secret",))
        events = [*events, event]
    return Contents(f"{name} version {version} {direction}", events, explained.error, end)


def _envelope_request(request: Explanation) -> bytes | None:
    """The request inside an Envelope; None if `request` is not an Envelope."""
    for event in request.events:
        if "envelope_request" in event.roles and event.value:
            return bytes(event.value)
    return None


def _kind(request: bytes) -> tuple[int, int]:
    """API key and version of a request; -1 if it is too short."""
    if len(request) < 4:
        return -1, -1
    return int.from_bytes(request[:2], signed=True), int.from_bytes(request[2:4], signed=True)

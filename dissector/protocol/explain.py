"""Decodes one message into a list of events: which field each byte belongs to.

There is an event per field, element and struct. `show` prints them. They also locate errors: the
events before the error are valid, and the error names the field.

A tagged field that the version does not know is an event with its bytes. Tags that repeat, or are
out of order, are read as they come. The content of a tagged field must fill its size exactly.

Recursion follows the definition, never the data, and every step reads at least one byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from dissector.arrays import value
from dissector.errors import DecodeError, TooManyElements
from dissector.protocol.limits import most_elements
from dissector.protocol.notation import Definition, Field
from dissector.protocol.wire import Reader, count, present, scalar, unsigned_varint

TAGS: Final = "_tagged_fields"
"""Name of a tagged section in paths, as in Kafka's protocol guide."""

UNKNOWN_TAG: Final = "unknown_tag"
"""Role of a tagged field that the version does not know."""


@value
class Explained:
    """One field, element or struct of a message.

    The bytes of a value include its length; those of a tagged field, its tag and size; those of an
    array, its count and all elements. So the child events of an event follow each other without a
    gap, and the last child ends where its parent ends.
    """

    path: str
    """As ``topics[2].partitions[0].error_code``."""
    name: str
    """Last part of the path: ``error_code``; ``[2]`` for an element."""
    type: str
    """As on the pages: ``int32``, ``{}``, ``[]``, ``[int32]``; ``tags`` is a tagged section."""
    value: Any
    """None for null. For an array, the number of elements; for a struct, of fields."""
    offset: int
    """Of its first byte, in the input."""
    length: int
    """Number of bytes; if there is an error inside, up to the error."""
    depth: int
    roles: tuple[str, ...] = ()

    @property
    def is_body_value(self) -> bool:
        """Whether it is a value of a body: not a field of a header, a struct, or an array."""
        is_container = self.type in ("{}", "tags") or self.type.startswith("[")
        return not is_container and ".header." not in f".{self.path}"


@value
class Explanation:
    """The fields of a message, up to the first error."""

    events: list[Explained] = field(default_factory=list)
    """In wire order; an array or struct comes before its content."""
    error: DecodeError | None = None
    """The error after the last event, with path and offset; None if there is none."""
    end: int = 0
    """Offset after the last byte that was read."""
    surplus: int = 0
    """Bytes after the last field; see `dissector.protocol.limits`."""


def explain(layout: Definition, data: bytes, start: int = 0) -> Explanation:
    """All fields of the bytes from `start` on, which must fill them. Never raises."""
    reader = BodyReader(data, start)

    def body() -> None:
        reader.fields(layout.fields, layout.flexible)
        reader.finish()

    return reader.explanation(body)


class EnclosingFields:
    """Values of fields next to a field, or next to the structs around it, by role."""

    def __init__(self, events: Iterable[Explained] = ()) -> None:
        self._values: dict[tuple[str, str], Any] = {}
        self.add(events)

    def add(self, events: Iterable[Explained]) -> None:
        """Add the values of fields."""
        for event in events:
            for role in event.roles:
                self.set(_parent(event.path), role, event.value)

    def set(self, parent: str, role: str, value: Any) -> None:
        """Set the value of a role in the struct at path `parent`; null is ignored."""
        if value is not None:
            self._values[parent, role] = value

    def of(self, path: str, role: str) -> Any:
        """The value of the nearest field with this role; None if no enclosing struct has one."""
        while path:
            path = _parent(path)
            if (path, role) in self._values:
                return self._values[path, role]
        return None


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


class BodyReader:
    """Reads bytes by one definition after another, such as a header and then a body.

    Each read appends to `events` and advances `at`. Methods raise DecodeError with path and offset.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.events: list[Explained] = []
        self._elements = 0  # number that the arrays of a body may still have

    def explanation(self, steps: Callable[[], None]) -> Explanation:
        """Run `steps`, which calls methods of this reader; returns their result."""
        try:
            steps()
        except DecodeError as error:
            # They refer to the frames of callers, and so to the bytes of a whole block.
            error.__traceback__ = error.__context__ = None
            return Explanation(self.events, error, self.at)
        return Explanation(self.events, None, self.at, self.left)

    def fields(
        self, fields: Sequence[Field], flexible: bool, prefix: str = "", depth: int = 0
    ) -> None:
        """Read the fields of a body or struct, and its tagged section if it has one."""
        if depth == 0:
            self._elements = most_elements(len(self.data) - self.at)
        for item in fields:
            if item.tag is None:
                self._field(item, flexible, prefix + item.name, depth, self.at)
        if flexible:
            tagged = {item.tag: item for item in fields if item.tag is not None}
            self.tags(tagged, prefix, depth)

    def tags(self, known: Mapping[int, Field], prefix: str = "", depth: int = 0) -> None:
        """Read a tagged section: a count, then for each field its tag, size and content."""
        start, path = self.at, prefix + TAGS
        number = self._read(unsigned_varint, path)
        self._add(Explained(path, TAGS, "tags", number, start, self.at - start, depth))
        for _ in range(number):
            start = self.at
            tag, size = self._read(unsigned_varint, path), self._read(unsigned_varint, path)
            end = self.at + size
            if end > len(self.data):
                detail = f"tag {tag} announces {size} bytes and {self.left} are left"
                raise DecodeError(detail, offset=start, path=path)
            if tag in known:
                path_of_tag = prefix + known[tag].name
                self._field(known[tag], True, path_of_tag, depth, start)
                if self.at != end:
                    detail = f"tag {tag} announces {size} bytes and takes {size + self.at - end}"
                    raise DecodeError(detail, offset=self.at, path=path_of_tag)
            else:
                value, self.at = self.data[self.at : end], end
                name, roles = f"tag {tag}", (UNKNOWN_TAG,)
                length = end - start
                self._add(
                    Explained(prefix + name, name, "bytes", value, start, length, depth, roles)
                )

    @property
    def left(self) -> int:
        """Number of unread bytes."""
        return len(self.data) - self.at

    def finish(self) -> None:
        """Raise DecodeError unless all bytes were read."""
        if self.left:
            last = self.events[-1].path if self.events else ""
            raise DecodeError(f"{self.left} bytes are left over", offset=self.at, path=last)

    def scalar(self, type: str, flexible: bool, nullable: bool) -> Reader:
        """The reader of a value that is not a struct."""
        return scalar(type, flexible, nullable)

    def _read(self, read: Reader, path: str) -> Any:
        try:
            value, self.at = read(self.data, self.at)
        except DecodeError as error:
            raise DecodeError(error.detail, offset=error.offset, path=path) from None
        return value

    def _add(self, event: Explained) -> None:
        self.events.append(event)

    def _field(self, item: Field, flexible: bool, path: str, depth: int, start: int) -> None:
        if not item.is_array:
            self._value(item, flexible, path, item.name, depth, start)
            return
        number = self._read(count(flexible, item.nullable), path)
        self._elements -= number or 0
        if self._elements < 0:
            detail = f"too many elements to decode: an array announces {number}"
            raise TooManyElements(detail, offset=start, path=path)
        form = "[]" if item.type == "struct" else f"[{item.type}]"
        slot, length = len(self.events), self.at - start
        self._add(Explained(path, item.name, form, number, start, length, depth, item.roles))
        try:
            for index in range(number or 0):
                name = f"[{index}]"
                self._value(item, flexible, path + name, name, depth + 1, self.at)
        finally:
            self._close(slot)

    def _value(
        self, item: Field, flexible: bool, path: str, name: str, depth: int, start: int
    ) -> None:
        """Read a field without array, or an element, which is never null."""
        nullable = item.nullable and not item.is_array
        if item.type != "struct":
            value = self._read(self.scalar(item.type, flexible, nullable), path)
            length = self.at - start
            self._add(Explained(path, name, item.type, value, start, length, depth, item.roles))
            return
        is_present = not nullable or self._read(present(item.tag is not None), path)
        slot, length = len(self.events), self.at - start
        size = len(item.fields) if is_present else None
        self._add(Explained(path, name, "{}", size, start, length, depth, item.roles))
        if is_present:
            try:
                self.fields(item.fields, flexible, path + ".", depth + 1)
            finally:
                self._close(slot)

    def _close(self, slot: int) -> None:
        """Set the length of an array or struct once its content has been read."""
        e = self.events[slot]
        self.events[slot] = Explained(
            e.path, e.name, e.type, e.value, e.offset, self.at - e.offset, e.depth, e.roles
        )

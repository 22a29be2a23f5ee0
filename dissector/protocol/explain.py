"""The explaining walker: of every byte of one message, what it belongs to.

It goes through a definition and the bytes together, and leaves an event for each field, element and
struct. It serves `show`, and whoever needs to know where a message is wrong: the events up to there
are good, and the error names the field.

A tagged field that the version does not know is an event of its own, as bytes. A tag that comes
twice, or out of order, is read as it comes; its content must fill its size exactly.

Depth is that of the definition, never of the data, and no step is taken without a byte read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dissector.errors import DecodeError, TooManyElements
from dissector.protocol.element_limits import most_elements
from dissector.protocol.notation import Definition, Field
from dissector.protocol.wire import Reader, count, present, scalar, unsigned_varint

TAGS: Final = "_tagged_fields"
"""Name of a tagged section in paths, as in Kafka's protocol guide."""


@dataclass(frozen=True, slots=True)
class Explained:
    """One field, element or struct of a message.

    A value's bytes include its length; those of a tagged field its tag and size; those of an array
    its count and all elements. So the events right below one follow each other without a gap, and
    the last ends where it ends.
    """

    path: str
    """As ``topics[2].partitions[0].error_code``."""
    name: str
    """Last part of the path: ``error_code``; ``[2]`` for an element."""
    type: str
    """As in the pages: ``int32``, ``{}``, ``[]``, ``[int32]``; ``tags`` counts a tagged section."""
    value: Any
    """None where null. Of an array how many elements it has, of a struct how many fields."""
    offset: int
    """Of its first byte, in what was handed in."""
    length: int
    """Bytes that it takes; on the way to an error, those up to the error."""
    depth: int
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a message says, field by field, as far as it can be read."""

    events: list[Explained] = field(default_factory=list)
    """In wire order, an array or struct before what is in it."""
    error: DecodeError | None = None
    """What is wrong behind the last event, with its path and offset; None where nothing is."""
    end: int = 0
    """Offset behind the last byte that was read."""
    surplus: int = 0
    """Bytes behind the last field; see `dissector.protocol.surplus`."""


def explain(layout: Definition, data: bytes, start: int = 0, end: int | None = None) -> Explanation:
    """Every field of the bytes from `start` to `end`, which hold nothing else. Never raises."""
    walk = BodyReader(data if end is None else data[:end], start)

    def body() -> None:
        walk.fields(layout.fields, layout.flexible)
        walk.finish()

    return walk.explanation(body)


class EnclosingFields:
    """What stands beside a field, or beside a struct that holds it, by role."""

    def __init__(self, events: Iterable[Explained] = ()) -> None:
        self._values: dict[tuple[str, str], Any] = {}
        self.add(events)

    def add(self, events: Iterable[Explained]) -> None:
        """Take the values of fields."""
        for event in events:
            for role in event.roles:
                self.tell(_parent(event.path), role, event.value)

    def tell(self, parent: str, role: str, value: Any) -> None:
        """Note a value in the struct of that path; null tells nothing."""
        if value is not None:
            self._values[parent, role] = value

    def of(self, path: str, role: str) -> Any:
        """The value of the field of that role that stands nearest; None where there is none."""
        while path:
            path = _parent(path)
            if (path, role) in self._values:
                return self._values[path, role]
        return None


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


class BodyReader:
    """A walk over bytes that several definitions may share: a header, then its body.

    `events` grows, `at` moves on. The methods raise DecodeError, with path and offset.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.events: list[Explained] = []
        self._elements = 0  # that the arrays of a body may still have

    def explanation(self, steps: Callable[[], None]) -> Explanation:
        """What the steps, which are calls of this walk's methods, come to."""
        try:
            steps()
        except DecodeError as error:
            return Explanation(self.events, error, self.at)
        return Explanation(self.events, None, self.at, self.left)

    def fields(
        self, fields: Sequence[Field], flexible: bool, prefix: str = "", depth: int = 0
    ) -> None:
        """The fields of a body or a struct, and its tagged section where it has one."""
        if depth == 0:
            self._elements = most_elements(len(self.data) - self.at)
        for item in fields:
            if item.tag is None:
                self._field(item, flexible, prefix + item.name, depth, self.at)
        if flexible:
            tagged = {item.tag: item for item in fields if item.tag is not None}
            self.tags(tagged, prefix, depth)

    def tags(self, known: Mapping[int, Field], prefix: str = "", depth: int = 0) -> None:
        """A tagged section: its count, then for each a tag, a size and that many bytes."""
        start, path = self.at, prefix + TAGS
        number = self._read(unsigned_varint, path)
        self._event(path, TAGS, "tags", number, start, depth)
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
                self._event(f"{prefix}tag {tag}", f"tag {tag}", "bytes", value, start, depth)

    @property
    def left(self) -> int:
        """Number of bytes that were not read yet."""
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

    def _event(
        self,
        path: str,
        name: str,
        type: str,
        value: Any,
        start: int,
        depth: int,
        roles: tuple[str, ...] = (),
    ) -> None:
        length = self.at - start
        self.events.append(Explained(path, name, type, value, start, length, depth, roles))

    def _field(self, item: Field, flexible: bool, path: str, depth: int, start: int) -> None:
        if not item.is_array:
            self._value(item, flexible, path, item.name, depth, start, item.nullable)
            return
        number = self._read(count(flexible, item.nullable), path)
        self._elements -= number or 0
        if self._elements < 0:
            detail = f"more elements than are decoded of a message, {number} of them"
            raise TooManyElements(detail, offset=start, path=path)
        form = "[]" if item.type == "struct" else f"[{item.type}]"
        slot = len(self.events)
        self._event(path, item.name, form, number, start, depth, item.roles)
        try:
            for index in range(number or 0):
                name = f"[{index}]"
                self._value(item, flexible, path + name, name, depth + 1, self.at, False)
        finally:
            self._close(slot)

    def _value(
        self,
        item: Field,
        flexible: bool,
        path: str,
        name: str,
        depth: int,
        start: int,
        nullable: bool,
    ) -> None:
        if item.type != "struct":
            value = self._read(self.scalar(item.type, flexible, nullable), path)
            self._event(path, name, item.type, value, start, depth, item.roles)
            return
        here = not nullable or self._read(present(item.tag is not None), path)
        slot = len(self.events)
        self._event(path, name, "{}", len(item.fields) if here else None, start, depth, item.roles)
        if here:
            try:
                self.fields(item.fields, flexible, path + ".", depth + 1)
            finally:
                self._close(slot)

    def _close(self, slot: int) -> None:
        """Give an array or struct its length, now that what is in it has been read."""
        e = self.events[slot]
        self.events[slot] = Explained(
            e.path, e.name, e.type, e.value, e.offset, self.at - e.offset, e.depth, e.roles
        )

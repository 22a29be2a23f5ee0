"""Parses pages in the notation, which `notation` describes.

The parser reads a page from top to bottom, line by line; only indentation connects lines. Anything
that violates the notation, or is impossible on the wire, raises DefinitionError with page and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dissector.errors import DefinitionError
from dissector.protocol.notation import (
    WIDTHS,
    Api,
    FieldLine,
    Page,
    PageSection,
    Removal,
    Structure,
)
from dissector.protocol.roles import ROLES

_NULLABLE: Final = frozenset({"string", "bytes", "records", "struct"})


def parse_page(text: str, name: str) -> Page:
    """Parse the page of an API. `name` is used in errors. Raises DefinitionError."""
    return _Parser(text, name).page()


def parse_structures(text: str, name: str) -> tuple[Structure, ...]:
    """Parse the structures of a page. `name` is used in errors. Raises DefinitionError."""
    return _Parser(text, name).structures()


def parse_api(text: str, name: str) -> Api:
    """Parse a page up to its fields. `name` is used in errors. Raises DefinitionError."""
    return _Parser(text.partition("\nrequest")[0], name).api()


class _Line(NamedTuple):
    number: int
    depth: int
    words: list[str]


_VERSIONS = re.compile(r"(\d+)(?:-(\d+)|(\+))?")
_TYPE = re.compile(r"(\[\]|\{\}|\[[a-z0-9]+\]|[a-z0-9]+)(?:(\?)(\d[-+\d]*)?)?")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class _Parser:
    """Reads one page from top to bottom; `at` is the index of the next line."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.lines = self._split(text)
        self.at = 0
        self.versions = range(0)
        self.flexible = range(0)

    def _split(self, text: str) -> list[_Line]:
        lines = []
        for number, raw in enumerate(text.splitlines(), 1):
            body = raw.partition("#")[0].rstrip()
            if not body:
                continue
            spaces = len(body) - len(body.lstrip(" "))
            line = _Line(number, spaces // 2, body.split())
            if spaces % 2 or body[spaces] == "\t":
                raise self._error("expected two spaces of indentation per level", line)
            lines.append(line)
        return lines

    def _error(self, detail: str, line: _Line | None = None) -> DefinitionError:
        """An error in `line`; default: in the next line."""
        if line is None and self.lines:
            line = self.lines[min(self.at, len(self.lines) - 1)]
        return DefinitionError(detail, page=self.name, line=line.number if line else 1)

    def _next(self) -> _Line | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    # header lines

    def page(self) -> Page:
        api = self.api()
        request = self._section("request", api.versions)
        response = self._section("response", api.versions)
        if self._next():
            raise self._error("unexpected line after the response")
        return Page(api, (request, response))

    def structures(self) -> tuple[Structure, ...]:
        structures = []
        while self._next():
            structures.append(self._structure())
        return tuple(structures)

    def api(self) -> Api:
        """The header line of an API, and the facts below it."""
        line = self._next()
        match line.words if line and line.depth == 0 else []:
            case ["api", key, api, "versions", versions, "flexible", flexible] if key.isdecimal():
                self._header(versions, flexible)
                facts: dict[str, Any] = {"client_throttles": self.versions}
                facts.update(self._facts())
                return Api(int(key), api, self.versions, self.flexible, **facts)
            case _:
                raise self._error("expected: api KEY NAME versions A-B flexible A+")

    def _facts(self) -> Iterator[tuple[str, Any]]:
        """The lines between the header line and the request, as attributes of `Api`."""
        seen = set()
        fact: tuple[str, Any]
        while (line := self._next()) and line.depth == 0 and line.words[0] != "request":
            match line.words:
                case ["client", "throttles", versions]:
                    fact = "client_throttles", self._versions(versions, self.versions)
                case ["removed", versions, "in", release, *effect] if release[-1] == ":" and effect:
                    removed = self._versions(versions, self.versions)
                    fact = "removal", Removal(removed, release[:-1], " ".join(effect))
                case ["long", "poll"]:
                    fact = "is_long_poll", True
                case ["group", "barrier"]:
                    fact = "is_group_barrier", True
                case _:
                    raise self._error("expected a fact about the API, or the section request")
            if fact[0] in seen:
                raise self._error("the page has this fact already")
            seen.add(fact[0])
            self.at += 1
            yield fact

    def _structure(self) -> Structure:
        line = self._next()
        match line.words if line and line.depth == 0 else []:
            case ["structure", name, "versions", versions, "flexible", flexible, *tokens]:
                types = self._types(tokens)
                self._header(versions, flexible)
                lines = self._fields(1, self.versions)
                return Structure(name, self.versions, self.flexible, types, lines)
            case _:
                raise self._error("expected: structure NAME versions A-B flexible A+")

    def _types(self, words: list[str]) -> range:
        if not words:
            return range(0)
        match = _VERSIONS.fullmatch(words[-1])
        if words[0] != "type" or len(words) != 2 or not match or match[3]:
            raise self._error("expected type A or type A-B after the flexible versions")
        return range(int(match[1]), int(match[2] or match[1]) + 1)

    def _header(self, versions: str, flexible: str) -> None:
        match = _VERSIONS.fullmatch(versions)
        if not match or match[3]:
            raise self._error(f"versions {versions}: expected A or A-B in a header line")
        newest = int(match[2] or match[1])
        self.versions = self._versions(versions, range(newest + 1))
        self.flexible = range(0)
        if flexible != "none":
            self.flexible = self._versions(flexible, self.versions)
        self.at += 1

    def _section(self, name: str, versions: range) -> PageSection:
        line = self._next()
        if line is None or line.depth or line.words[0] != name:
            raise self._error(f"expected the section {name}")
        header, where = None, versions
        match line.words[1:]:
            case []:
                where = range(0)
            case ["header", number, *tokens] if number.isdecimal() and len(tokens) < 2:
                header = int(number)
                if tokens:
                    where = self._versions(tokens[0], versions)
            case _:
                raise self._error(
                    f"expected nothing, or header NUMBER and its versions, after {name}"
                )
        self.at += 1
        return PageSection(self._fields(1, versions), header, where)

    def _versions(self, word: str, within: range) -> range:
        """``3``, ``3+`` or ``0-2`` as a range, which must be inside `within`."""
        match = _VERSIONS.fullmatch(word)
        if not match:
            raise self._error(f"{word}: expected versions A, A+ or A-B")
        first = int(match[1])
        last = within[-1] if match[3] else int(match[2] or first)
        if not within[0] <= first <= last <= within[-1]:
            raise self._error(f"versions {word} are not inside {within[0]}-{within[-1]}")
        return range(first, last + 1)

    # field lines

    def _fields(self, depth: int, within: range) -> tuple[FieldLine, ...]:
        """The lines of one level, with the lines below them."""
        lines: list[FieldLine] = []
        while (line := self._next()) and line.depth >= depth:
            if line.depth > depth:
                raise self._error("indented without a struct above")
            field = self._field(line, within)
            for earlier in lines:
                if _overlap(field.versions, earlier.versions) and (
                    field.name == earlier.name
                    or (field.tag is not None and field.tag == earlier.tag)
                ):
                    raise self._error(
                        f"{field.name}: another field has this name or tag in these versions", line
                    )
            lines.append(field)
        return tuple(lines)

    def _field(self, line: _Line, within: range) -> FieldLine:
        if len(line.words) < 2:
            raise self._error("expected a name and a type")
        name, form, *tokens = line.words
        if not _NAME.fullmatch(name):
            raise self._error(f"{name}: names must be snake_case")
        versions = within
        if tokens and tokens[0][0].isdecimal():
            versions = self._versions(tokens.pop(0), within)
        kind, is_array, nullable = self._type(form, versions)
        tag = None
        if tokens and tokens[0] == "tag":
            if len(tokens) < 2 or not tokens[1].isdecimal():
                raise self._error("expected a number after tag")
            tag, tokens = int(tokens[1]), tokens[2:]
            if not all(version in self.flexible for version in versions):
                raise self._error("only flexible versions can have tagged fields")
        for role in tokens:
            if not role.startswith("@"):
                raise self._error(f"{role}: expected versions, tag and @roles after the type")
            if role[1:] not in ROLES:
                raise self._error(f"unknown role {role}")
        self.at += 1
        lines = self._fields(line.depth + 1, versions) if kind == "struct" else ()
        if kind == "struct" and not lines:
            raise self._error(f"{name}: a struct without fields", line)
        roles = tuple(role[1:] for role in tokens)
        return FieldLine(name, kind, is_array, versions, nullable, tag, roles, lines)

    def _type(self, form: str, versions: range) -> tuple[str, bool, range]:
        """The type, whether it is an array, and the versions in which it is nullable."""
        match = _TYPE.fullmatch(form)
        if not match:
            raise self._error(f"unknown type {form}")
        base = match[1]
        is_array = base[0] == "["
        kind = "struct" if base in ("[]", "{}") else base.strip("[]")
        if kind not in {*WIDTHS, *_NULLABLE} or base.strip("[]") == "struct":
            raise self._error(f"unknown type {form}")
        if not match[2]:
            return kind, is_array, range(0)
        if not is_array and kind not in _NULLABLE:
            raise self._error(f"{form}: {kind} cannot be null")
        nullable = self._versions(match[3], versions) if match[3] else versions
        return kind, is_array, nullable


def _overlap(first: range, second: range) -> bool:
    return bool(first and second and first[0] <= second[-1] and second[0] <= first[-1])

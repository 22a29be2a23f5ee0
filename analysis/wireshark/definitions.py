"""The definition pages as Lua tables.

An API is a table with its name and versions, and a list of lines for each direction. A line is
``{name, type, first version, last version, array=, null=, tag=, role=, lines below it ...}``, as
on the page. Only the roles that the plugin reads are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from dissector.protocol import registry
from dissector.protocol.notation import Direction, FieldLine, Page, PageSection
from dissector.secrets import has_secrets

ROLES: Final = (
    "secret", "acks", "config_name", "config_value", "envelope_request", "envelope_response",
    "error_code", "group_id", "is_sensitive", "member_id", "partition", "producer_id",
    "records", "throttle_time_ms", "topic", "topic_id", "transactional_id",
)  # fmt: skip
"""Roles that the plugin reads, the first one of a field: secret records are secret."""


def definitions() -> str:
    """The Lua statements that define APIs, error codes, names of configurations, and secrets."""
    apis = registry.apis()
    lines = [f"local LAST_API = {max(apis)}", "local apis = {"]
    for key in apis:
        lines += lua_api(registry.page(key))
    lines += ["}", "local error_names = {"]
    lines += [f'    [{code}] = "{each.name}",' for code, each in registry.error_codes().items()]
    lines += ["}", "local open_configs = {"]
    lines += [f'    ["{name}"] = true,' for name in sorted(registry.open_configs())]
    lines += ["}", "local apis_with_secrets = {"]
    for direction in Direction:
        keys = (f"[{key}] = true" for key in apis if has_secrets(key, direction))
        lines.append(f"    {direction.name.lower()} = {{{', '.join(keys)}}},")
    lines.append("}")
    return "\n".join(lines) + "\n"


def field_prefix(api: str) -> str:
    """The part of an API in the names of its fields: ``list_offsets`` for ListOffsets."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", api).lower()


def lua_api(page: Page) -> Iterator[str]:
    """The lines of one API's table."""
    api = page.api
    yield f'    [{api.key}] = {{name = "{api.name}", field = "{field_prefix(api.name)}",'
    yield f"        first = {api.versions[0]}, last = {api.versions[-1]},"
    if api.flexible:
        yield f"        flexible = {_pair(api.flexible)},"
    for direction, section in zip(Direction, page.sections, strict=True):
        yield from _section(direction.name.lower(), section)
    yield "    },"


def _section(name: str, section: PageSection) -> Iterator[str]:
    if section.header is not None:
        versions = section.header_versions
        yield f"        {name}_header = {{{section.header}, {versions[0]}, {versions[-1]}}},"
    yield f"        {name} = {{"
    yield from _lines(section.lines, 3)
    yield "        },"


def _lines(lines: Iterable[FieldLine], depth: int) -> Iterator[str]:
    indent = "    " * depth
    for line in lines:
        head = f"{indent}{{{', '.join(_values(line))}"
        if line.lines:
            yield f"{head},"
            yield from _lines(line.lines, depth + 1)
            yield f"{indent}}},"
        else:
            yield f"{head}}},"


def _values(line: FieldLine) -> Iterator[str]:
    yield f'"{line.name}", "{line.type}", {line.versions[0]}, {line.versions[-1]}'
    if line.is_array:
        yield "array = true"
    if line.nullable:
        yield f"null = {_pair(line.nullable)}"
    if line.tag is not None:
        yield f"tag = {line.tag}"
    role = next((each for each in ROLES if each in line.roles), None)
    if role is not None:
        yield f'role = "{role}"'


def _pair(versions: range) -> str:
    return f"{{{versions[0]}, {versions[-1]}}}"

"""Compares the definition pages with the JSON schemas that every kafka-clients jar contains.

`differences` returns a line per difference, of one of these forms:

    MISSING FetchRequest v19: the version, new fields a, b
    MISSING FetchRequest v3-5: fields a, b
    SURPLUS FetchRequest v3-5: fields a, b
    DIFFERENT FetchRequest v3-5: fields a, b
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from dissector.protocol import registry
from dissector.protocol.notation import Direction, Field, Layout, StructureLayout

RENAMED: Mapping[str, Mapping[str, str]] = {
    "TxnOffsetCommit": {"generation_id": "generation_id_or_member_epoch"},
    "Vote": {
        "candidate_epoch": "replica_epoch",
        "candidate_id": "replica_id",
        "candidate_directory_id": "replica_directory_id",
    },
    "ListConfigResources": {
        "client_metrics_resources": "config_resources",
        "name": "resource_name",
    },
    "StreamsGroupHeartbeat": {"acceptable_recovery_lag_legacy": "acceptable_recovery_lag"},
}
"""Fields with two names, on the page or in the schema; the comparison uses the second name."""


class Shape(NamedTuple):
    """The type of a field on the wire."""

    type: str
    is_array: bool
    nullable: bool
    tag: int | None


Shapes = dict[str, Shape]
"""The fields of one version by path, such as ``topics.partitions.index``, in wire order."""


def load(jar: Path) -> dict[str, dict[str, Any]]:
    """The schemas of a kafka-clients jar by name; `comments` of each has the text of its file."""
    schemas = {}
    with zipfile.ZipFile(jar) as files:
        for name in files.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                text = files.read(name).decode()
                schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
                schemas[schema["name"]] = schema | {"comments": text}
    return schemas


def version_range(text: str, newest: int) -> range:
    """Versions as schemas write them: ``none``, ``3``, ``3+``, ``0-2``."""
    if text == "none":
        return range(0)
    first, _, last = text.partition("-")
    if text.endswith("+"):
        return range(int(text[:-1]), newest + 1)
    return range(int(first), int(last or first) + 1)


def expected_shapes(schema: Mapping[str, Any], version: int) -> Shapes:
    """The fields of one version, as the schema has them."""
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
    renamed = RENAMED.get(re.sub("(Request|Response)$", "", schema["name"]), {})
    return dict(_expected(schema["fields"], version, common, renamed))


def _expected(
    fields: Iterable[Mapping[str, Any]],
    version: int,
    common: Mapping[str, Any],
    renamed: Mapping[str, str],
    prefix: str = "",
) -> Iterator[tuple[str, Shape]]:
    present = [field for field in fields if version in version_range(field["versions"], version)]
    tags = {
        field["name"]: field["tag"]
        for field in present
        if version in version_range(field.get("taggedVersions", "none"), version)
    }
    for field in sorted(present, key=lambda field: tags.get(field["name"], -1)):
        name = snake_case(field["name"])
        path = prefix + renamed.get(name, name)
        element = field["type"].removeprefix("[]")
        is_struct = element[0].isupper()
        nullable = version in version_range(field.get("nullableVersions", "none"), version)
        yield (
            path,
            Shape(
                "struct" if is_struct else element,
                field["type"] != element,
                nullable,
                tags.get(field["name"]),
            ),
        )
        if is_struct:
            nested = field.get("fields") or common[element]
            yield from _expected(nested, version, common, renamed, f"{path}.")


def snake_case(name: str) -> str:
    """``TopicId`` as ``topic_id``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def page_shapes(layout: Layout | StructureLayout) -> Shapes:
    """The fields of one version, as the page has them."""
    renamed = RENAMED.get(layout.api, {}) if isinstance(layout, Layout) else {}
    return dict(_of_page(layout.fields, renamed))


def _of_page(
    fields: Iterable[Field], renamed: Mapping[str, str], prefix: str = ""
) -> Iterator[tuple[str, Shape]]:
    for field in fields:
        path = prefix + renamed.get(field.name, field.name)
        yield path, Shape(field.type, field.is_array, field.nullable, field.tag)
        yield from _of_page(field.fields, renamed, f"{path}.")


def differences(schemas: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each difference between schemas and pages; none where they agree."""
    lines = []
    for name, schema in schemas.items():
        if schema["type"] in ("request", "response"):
            direction = Direction[schema["type"].upper()]
            key = schema["apiKey"]
            if key not in registry.apis():
                lines.append(f"MISSING {name}: the API, with key {key}")
                continue

            lines += _of_schema(
                schema, registry.versions(key), partial(registry.layout, key, direction)
            )
        elif name in registry.all_structures():
            structure = registry.structure(name)
            lines += _of_schema(schema, structure.versions, structure.layout)
    return lines


def _of_schema(
    schema: Mapping[str, Any],
    known: range,
    layout: Callable[[int], Layout | StructureLayout],
) -> Iterator[str]:
    valid = version_range(schema["validVersions"], 0)
    flexible = version_range(schema.get("flexibleVersions", "none"), max(valid, default=0))
    lines: list[tuple[int, str, str]] = []
    for version in valid:
        expected = expected_shapes(schema, version)
        ours = layout(version if version in known else known[-1])
        has = page_shapes(ours)
        missing = [path for path in expected if path not in has]
        if version not in known:
            lines.append((version, "MISSING", f"the version, {_named('new fields', missing)}"))
            continue
        if missing:
            lines.append((version, "MISSING", _named("fields", missing)))
        if surplus := [path for path in has if path not in expected]:
            lines.append((version, "SURPLUS", _named("fields", surplus)))
        shared = [path for path in expected if path in has]
        if different := [path for path in shared if expected[path] != has[path]]:
            lines.append((version, "DIFFERENT", _named("fields", different)))
        elif shared != [path for path in has if path in expected]:
            lines.append((version, "DIFFERENT", "order of the fields"))
        if ours.flexible != (version in flexible):
            lines.append((version, "DIFFERENT", "flexible"))
    lines.sort(key=lambda line: (line[1:], line[0]))
    for (kind, detail), group in groupby(lines, key=lambda line: (line[1], line[2])):
        versions = [version for version, *_ in group]
        for first, last in _runs(versions):
            shown = f"v{first}" if first == last else f"v{first}-{last}"
            yield f"{kind} {schema['name']} {shown}: {detail}"


def _named(label: str, paths: list[str]) -> str:
    return f"{label} {', '.join(paths)}" if paths else f"no {label}"


def _runs(versions: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    for _, run in groupby(enumerate(versions), key=lambda pair: pair[1] - pair[0]):
        numbers = [version for _, version in run]
        yield numbers[0], numbers[-1]


def throttle_version(schema: Mapping[str, Any]) -> int:
    """The first version in which the client throttles itself, by the comments of a response."""
    note = re.search(r"Starting in version (\d+),? on quota violation", schema["comments"])
    return int(note[1]) if note else 0


def removed_in(schema: Mapping[str, Any]) -> str | None:
    """The release of Kafka that removed versions, by the comments of a schema."""
    note = re.search(r"removed in Apache Kafka (\d+\.\d+)", schema["comments"])
    return note[1] if note else None

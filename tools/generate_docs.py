"""Generate documentation pages from code: one per table, one per answer, and command output.

Tables are declared in `dissector.tables`, answers in `analysis.answers`. The roles on the
definition pages show which messages fill a column. `tools.shown_output` runs the commands whose
output a page contains; the docstring of an answer has such commands without their output. A test
compares all of it with the files on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from string import ascii_lowercase
from textwrap import fill, indent
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from analysis.answers import ANSWERS, Answer, Option
from analysis.columns import resolved
from analysis.comparison import run as comparison
from analysis.diagnosis import rule as diagnosis
from analysis.diagnosis.catalog import RULES
from analysis.encrypted import response_times as encrypted
from analysis.sql import exchange_columns
from analysis.sql.views import name_of
from analysis.timeline import record as trace
from dissector.protocol import registry
from dissector.protocol.notation import Direction, Field
from dissector.tables import TABLES, Table, TableColumn
from tools.share_files import share_files
from tools.shown_output import ROOT, fresh, shown

MOST: Final = 12
"""Largest number of API names to list; for a longer list only its length is given."""

ROLES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "exchanges": {
            "topics": "topic topic_id", "partition_count": "partition", "record_count": "records",
            "record_bytes": "records", "error": "error_code", "error_count": "error_code",
            "group_id": ">group_id", "transactional_id": ">transactional_id",
        },
        "errors": {
            "error": "error_code", "retriable": "error_code", "topic": "<topic <topic_id",
            "partition": "<partition", "resource": "<group_id <transactional_id coordinator_key",
        },
        "topics": {},
        "brokers": {"rack": "broker_rack"},
        "clusters": {},
        "partitions": {
            "partition": "offsets_of", "topic": "topic topic_id", "offset": "offset offsets",
            "leader_epoch": "offset_epoch",
            "asked_timestamp": "offset_timestamp", "bytes": "records", "record_count": "records",
            "last_offset": "records", "error": "error_code", "max_bytes": "partition_max_bytes",
        },
        "memberships": {
            "generation": "<generation", "request_generation": ">generation",
            "protocol": "group_protocol", "leader": "group_leader", "member_count": "group_member",
            "reason": "group_reason", "error": "error_code",
        },
        "transactions": {"partition_count": "partition", "error": "error_code"},
        "connections": {},
    }
)  # fmt: skip
"""Roles of columns by table, for columns whose name is not their role. A prefix ``>`` restricts a
role to requests, ``<`` to responses."""

MAKES_ROWS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "errors": "error_code", "topics": "isr", "brokers": "broker_id",
        "clusters": "cluster_id", "partitions": "offsets_of", "batches": "records",
        "records": "records",
    }
)  # fmt: skip
"""By table: the role whose fields make its rows."""
OF_ONE_MESSAGE: Final = ("topics", "brokers", "clusters")
"""Tables whose columns come from the message that makes the row, not from the whole exchange."""


def pages() -> dict[Path, str]:
    """Every generated page, by its path."""
    tables = {ROOT / "docs/tables" / f"{name}.md": _table(table) for name, table in TABLES.items()}
    answers = {
        ROOT / "docs/answers" / f"{name}.md": fresh(_answer(answer))
        for name, answer in ANSWERS.items()
    }
    single = {
        ROOT / "docs/README.md": _index(),
        ROOT / "docs/rules.md": _rules(),
        ROOT / "docs/reference/columns.md": _results(),
        ROOT / "analysis/functions.py": _functions(),
    }
    return tables | answers | single | share_files()


def _functions() -> str:
    """Imports of every answer, for type checkers and completion."""
    names = sorted(ANSWERS)
    return "\n".join(
        [
            '"""Every answer as a function. Written by tools.generate_docs."""',
            "",
            *(f"from analysis.answers.{name} import {name}" for name in names),
            "",
            "__all__ = [",
            indent(fill(", ".join(f'"{name}"' for name in names) + ",", 96), "    "),
            "]  # fmt: skip",
            "",
        ]
    )


def filled_by(table: str, column: str) -> dict[Direction, dict[str, range]]:
    """APIs and versions that fill a column; empty if all do, or if no role determines it."""
    if table not in ROLES:
        return {}
    words = ROLES[table].get(column, column).split()
    sources: dict[Direction, dict[str, range]] = {}
    for direction, mark in ((Direction.REQUEST, ">"), (Direction.RESPONSE, "<")):
        roles = [word.lstrip("<>") for word in words if word[0] in (mark, *ascii_lowercase)]
        apis = _united([_apis_with(role)[direction] for role in roles])
        if named := {api: apis[api] for api in apis if _adds_rows(table, api, direction)}:
            sources[direction] = named
    return sources


def _united(parts: Sequence[Mapping[str, range]]) -> dict[str, range]:
    united: dict[str, range] = {}
    for part in parts:
        for api, versions in part.items():
            before = united.get(api, versions)
            first, last = min(before.start, versions.start), max(before.stop, versions.stop)
            united[api] = range(first, last)
    return united


def _adds_rows(table: str, api: str, direction: Direction) -> bool:
    """Whether messages of the API fill rows of the table: it is named in the table's text, or has
    the role."""
    _, _, names = TABLES[table].row.partition(": ")
    named = set(names.split(", ")) & set(registry.apis().values())
    if named and api not in named:
        return False
    if table not in MAKES_ROWS:
        return True
    sources = _apis_with(MAKES_ROWS[table])
    directions = (direction,) if table in OF_ONE_MESSAGE else Direction
    return any(api in sources[each] for each in directions)


@cache
def _apis_with(role: str) -> dict[Direction, dict[str, range]]:
    """APIs that have a field with this role, with the versions from the first to the last."""
    apis: dict[Direction, dict[str, range]] = {direction: {} for direction in Direction}
    for (key, direction), versions in _roles().items():
        matching = [version for version, roles in versions.items() if role in roles]
        if matching:
            apis[direction][registry.apis()[key]] = range(matching[0], matching[-1] + 1)
    return apis


@cache
def _roles() -> dict[tuple[int, Direction], dict[int, frozenset[str]]]:
    return {
        (key, direction): {
            version: frozenset(_walk(registry.layout(key, direction, version).fields))
            for version in registry.versions(key)
        }
        for key in registry.apis()
        for direction in Direction
    }


def _walk(fields: Iterable[Field]) -> Iterator[str]:
    for field in fields:
        yield from field.roles
        yield from _walk(field.fields)


def _table(table: Table) -> str:
    lines = [
        f"# {table.name}",
        "",
        f"A row is {table.row}.",
        "",
        f"    kafka-dissector export CAPTURE... --table {table.name}",
        "",
        f'In [Python](../reference/python.md), `kafka_dissector.load(paths, "{table.name}")`.',
        "",
    ]
    if table.name in MAKES_ROWS:
        sources = {d: apis for d, apis in _apis_with(MAKES_ROWS[table.name]).items() if apis}
        lines += [f"Rows come from {_apis_text(sources)}.", ""]
    if table.opt_in:
        lines += ["The table is opt-in: it is created only if you name it.", ""]
    rows = [
        (f"`{c.name}`", _type(c.type), c.unit, c.meaning, _apis_text(filled_by(table.name, c.name)))
        for c in table.columns
    ]
    heads = ("column", "type", "unit", "meaning", "filled by")
    lines += [*_markdown(heads, rows), ""]
    if table.name == "exchanges":
        lines += ["SQL (`sql`, `kafka_dissector.connect`) adds these columns:", ""]
        lines += _columns(exchange_columns.COLUMNS)
    return "\n".join(lines)


def _apis_text(sources: Mapping[Direction, Mapping[str, range]]) -> str:
    both = len(sources) == 2 and sources[Direction.REQUEST] == sources[Direction.RESPONSE]
    parts = []
    for direction, apis in list(sources.items())[both:]:
        names = [_versioned(api, versions) for api, versions in apis.items()]
        if len(names) > MOST:
            names = [f"{len(names)} of {len(registry.apis())} APIs"]
        kind = "requests and responses" if both else f"{direction.name.lower()}s"
        parts.append(f"{kind} of {', '.join(names)}")
    return "; ".join(parts)


def _versioned(api: str, versions: range) -> str:
    """The API, with its versions unless they are all versions."""
    (key,) = (key for key, name in registry.apis().items() if name == api)
    all_versions = registry.versions(key)
    if versions == all_versions:
        return api
    first, last = versions[0], versions[-1]
    if last == all_versions[-1]:
        return f"{api} {first}+"
    return f"{api} {first}" if first == last else f"{api} {first}-{last}"


def _answer(answer: Answer) -> str:
    head = (import_module(answer.function.__module__).__doc__ or "").strip()
    options = "".join(f" [{option.flag} {_value(option)}]" for option in answer.options)
    lines = [
        f"# {answer.name}", "", answer.question, "",
        f"    kafka-dissector {answer.name} CAPTURE...{options}", "",
        f"In [Python](../reference/python.md), `kafka_dissector.{answer.name}(paths)`. "
        f"It reads {_links(answer.tables)}.", "",
        f"In SQL, `select * from {name_of(answer)}`"
        f"{', with the default options' if answer.options else ''}.", "",
        head, "",
    ]  # fmt: skip
    if answer.options:
        rows = [(f"`{o.flag}`", o.meaning, _default(o.default)) for o in answer.options]
        lines += [*_markdown(("option", "meaning", "default"), rows), ""]
    if any(option.name == "by" for option in answer.options):
        lines += ["The columns of `--by` come first, followed by:", ""]
    lines += _columns(answer.columns)
    for variant, (option, others) in zip(
        answer.variants, answer.other_columns.items(), strict=True
    ):
        also = f" (it also reads {_links(variant.tables)})" if variant.tables else ""
        lines += [f"The columns with `{option}`{also}:", ""]
        lines += _columns(others)
    return "\n".join(lines)


def _links(tables: Sequence[str]) -> str:
    """Links to the pages of tables: `a, b and c`."""
    *others, last = (f"[{name}](../tables/{name}.md)" for name in tables)
    return f"{', '.join(others)} and {last}" if others else last


def _columns(columns: Iterable[TableColumn]) -> list[str]:
    rows = [(f"`{each.name}`", _type(each.type), each.unit, each.meaning) for each in columns]
    return [*_markdown(("column", "type", "unit", "meaning"), rows), ""]


def _value(option: Option) -> str:
    if option.read:
        return "FILE"
    return {tuple: "COLUMN,...", int: "N"}.get(type(option.default), "NAME")


def _default(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _type(type: pa.DataType) -> str:
    if pa.types.is_timestamp(type):
        return "timestamp"
    if pa.types.is_list(type):
        return f"list of {_type(type.value_type)}"
    if pa.types.is_struct(type):
        return " and ".join(f"{field.name}: {_type(field.type)}" for field in type)
    return str(type).removeprefix("large_")


def _index() -> str:
    tables = [(f"[{t.name}](tables/{t.name}.md)", t.row) for t in TABLES.values()]
    answers = [(f"[{a.name}](answers/{a.name}.md)", a.question) for a in ANSWERS.values()]
    return "\n".join(
        [
            "# Documentation", "",
            "Start with [the first ten minutes](tutorial.md), or with a complaint: [Kafka is "
            "slow](slow.md). Or let [diagnose](diagnose.md) find what is wrong. See also other "
            "[questions and their commands](howto/scenarios.md).", "",
            "How to find [rebalances](howto/rebalances.md), [quotas](howto/quotas.md) and [clients "
            "that Kafka 4 refuses](howto/kafka-4.md). How to [capture](howto/capture.md), also [in "
            "Kubernetes](howto/kubernetes.md), [for a day](howto/rotate.md), [as a "
            "service](howto/service.md) and [live](live.md), and how to [decrypt "
            "TLS](howto/tls.md). How to [browse](browse.md), show [names instead of "
            "addresses](howto/names.md), [filter](filters.md), [cut packets for "
            "Wireshark](cut.md), [share results without records](howto/share.md), [trace a "
            "record](trace.md), decode current Kafka versions in [Wireshark](howto/wireshark.md), "
            "and use [Spark](spark.md).", "",
            "Explanations: [what a latency means](explanation/latency.md), [comparison with "
            "Kafka's metrics](explanation/metrics.md), [how messages are "
            "found](explanation/messages.md), [where the time goes](time.md), "
            "[architecture](explanation/architecture.md), [terms](glossary.md).", "",
            "Reference: [commands](reference/commands.md), [Python](reference/python.md), [input "
            "and output](reference/output.md), [rules of diagnose](rules.md), [columns of "
            "diagnose, compare, trace and encrypted](reference/columns.md), "
            "[limits](reference/limits.md), [dependencies](reference/dependencies.md), and the "
            "pages below.", "",
            "## Answers", "",
            "Null means unknown or absent, or that there is nothing to measure, such as a median "
            "without values.", "",
            *_markdown(("answer", "question"), answers), "",
            "## Tables", "",
            "Times are in UTC, in nanoseconds since 1970. Packet numbers start at 1, as in "
            "Wireshark. The size of a message includes its 4-byte length. Null means unknown or "
            "absent. A column with APIs in *filled by* is also null in rows of other APIs, and if "
            "the message with the field is not in the capture. [Joins](reference/output.md#joins) "
            "describes how to join tables.", "",
            *_markdown(("table", "a row is"), tables), "",
        ]
    )  # fmt: skip


def _rules() -> str:
    rules = [(f"[{rule.name}](#{rule.name})", rule.question) for rule in RULES.values()]
    lines = [
        "# Rules of diagnose", "",
        "Each rule of [diagnose](diagnose.md) answers one question from answers or tables. Its "
        "thresholds are the values from which it reports a finding, and the smallest sample. "
        "`--threshold RULE.THRESHOLD=NUMBER` changes a threshold; without THRESHOLD, it changes "
        "the first one of the rule.", "",
        *_markdown(("rule", "question"), rules), "",
    ]  # fmt: skip
    for rule in RULES.values():
        head = (import_module(rule.function.__module__).__doc__ or "").strip()
        lines += [f"## {rule.name}", "", rule.question, "", head, ""]
        lines += [f"It uses {', '.join(map(_source, rule.rests_on))}.", ""]
        rows = [(f"`{t.name}`", f"{t.default:g} {t.unit}", t.reason) for t in rule.thresholds]
        if rows:
            lines += [*_markdown(("threshold", "default", "reason"), rows), ""]
    return "\n".join(lines)


def _results() -> str:
    """The columns of commands that are no answers."""
    results = {
        "diagnose": (diagnosis.COLUMNS, "A row is a finding. In Python, two columns follow: "
                     "`clients`, a tuple of client ids, and `numbers`, a dict."),
        "compare": (comparison.COLUMNS, "A row is a change. The columns of `--by` come first."),
        "trace": (trace.COLUMNS, "A row is an event of a record."),
        "encrypted": (encrypted.COLUMNS, "A row is a group of connections. The columns of `--by` "
                      "come first. In Python, the function is `response_times`."),
    }  # fmt: skip
    lines = [
        "# Columns of other results", "",
        "Each [answer and table](../README.md#answers) has a page with its columns. These are the "
        "columns of the other commands and functions that return rows.", "",
    ]  # fmt: skip
    for name, (columns, row) in results.items():
        lines += [f"## {name}", "", row, "", *_columns(resolved(columns))]
    return "\n".join(lines)


def _source(name: str) -> str:
    """A link to the page of an answer or a table."""
    return f"[{name}]({'answers' if name in ANSWERS else 'tables'}/{name}.md)"


def _markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(each.replace('|', chr(92) + '|') for each in row)} |" for row in cells]


def main() -> None:
    for path, text in (shown() | pages()).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()

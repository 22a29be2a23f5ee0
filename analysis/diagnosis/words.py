"""Parts of findings: amounts with units, names of clients, lists, commands, cells, advice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from analysis.display.terminal import shell_words

if TYPE_CHECKING:
    from analysis.sql.query import Row

Side: TypeAlias = Literal["client", "broker", "network", "capture"]

_SPECIAL: Final = re.compile(r'["$`\\!]')
"""Characters with a meaning inside of double quotes."""
_SPACES: Final = re.compile(r"('(?:[^']|'')*')|\s+")
"""A quoted text in SQL, which must not change; or spaces and line ends."""

_SINGULAR: Final = {
    "are": "is", "were": "was", "have": "has", "do": "does", "refuse": "refuses", "close": "closes",
}  # fmt: skip


def ms(value: float | None) -> str:
    """A duration given in ms: ``0.35 ms``, ``153 ms``, ``35.9 s``, ``12.5 min``, ``38.2 h``."""
    if value is None:
        return "an unknown time"
    if value < 9.95:
        return f"{value:.2g} ms" if value else "0 ms"
    if value < 999.5:
        return f"{value:.0f} ms"
    if value < 119_950:
        return f"{value / 1000:.1f} s"
    return f"{value / 60_000:.1f} min" if value < 7_197_000 else f"{value / 3_600_000:.1f} h"


def within(row: Row) -> str:
    """The time from `first_time` to `last_time` of a row: `` within 153 ms``; empty for one
    event."""
    lasts = row["last_time"] - row["first_time"]
    return f" within {ms(lasts / 1e6)}" if lasts else ""


def percent(value: float) -> str:
    """A share: ``82 %``, ``0.4 %``."""
    return f"{value:.0f} %" if value >= 9.95 else f"{value:.2g} %"


def client(client_id: str | None) -> str:
    """A client in a sentence: ``client `billing```."""
    return f"client `{client_id}`" if client_id else "a client without id"


def clients(client_ids: Sequence[str | None]) -> str:
    """Clients in a sentence: ``client `billing```, ``12 clients (`a`, `b` and 10 more)``."""
    if len(client_ids) == 1:
        return client(client_ids[0])
    names = (f"`{name}`" if name else "-" for name in client_ids)
    return f"{len(client_ids):,} clients ({listed(names)})"


def topics(names: Sequence[str | None]) -> str:
    """Topics in a sentence: ``topic `orders```, ``2 topics (`orders`, `payments`)``."""
    if len(names) == 1:
        return f"topic `{names[0]}`"
    return f"{len(names):,} topics ({listed(f'`{name}`' for name in names)})"


def ends(rows: Sequence[Row]) -> tuple[str, str]:
    """The clients and the brokers of rows, in a sentence."""
    brokers = addresses((row["broker"] for row in rows), "brokers")
    return clients(list(dict.fromkeys(row["client_id"] for row in rows))), brokers


def addresses(given: Iterable[str], plural: str) -> str:
    """Brokers or hosts in a sentence: ``10.0.0.1``, ``2 hosts (10.0.0.1, 10.0.0.2)``."""
    names = list(dict.fromkeys(given))
    return names[0] if len(names) == 1 else f"{len(names):,} {plural} ({listed(names)})"


def by_end(rows: Iterable[Row], column: str) -> Iterable[list[Row]]:
    """Rows with one client, or with one broker if these are fewer: one end is the likely cause.

    The row with the largest value of the column is the first of its group.
    """
    groups: dict[str, dict[str, list[Row]]] = {"client_id": {}, "broker": {}}
    for row in sorted(rows, key=lambda row: -(row[column] or 0)):
        for end, by_name in groups.items():
            by_name.setdefault(row[end], []).append(row)
    return min(groups.values(), key=len).values()


def known(client_ids: Iterable[str | None]) -> tuple[str, ...]:
    """The client ids, each once, without null."""
    return tuple(dict.fromkeys(name for name in client_ids if name))


def capital(text: str) -> str:
    """The text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def verb(count: int, plural: str) -> str:
    """The verb of a number of things: ``is`` or ``are``."""
    return _SINGULAR[plural] if count == 1 else plural


def listed(names: Iterable[object], most: int = 4) -> str:
    """The first names, and the number of further ones: ``a, b and 3 more``."""
    texts = [str(name) for name in names]
    suffix = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + suffix


def sql(query: str) -> str:
    """The command that runs a query, on one line, quoted for a shell."""
    line = _SPACES.sub(lambda match: match[1] or " ", query).strip()
    is_plain = line.isprintable() and not _SPECIAL.search(line)
    return f'sql "{line}"' if is_plain else f"sql {shell_words([line])}"


def trace(row: Row, offset: int) -> str:
    """The command that follows a record of the partition of a row."""
    topic = shell_words([row["topic"]])
    return (
        f"kafka-dissector trace CAPTURE --topic {topic} --partition {row['partition']} "
        f"--offset {offset}"
    )


def rows_by(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Rows by the value of a column, or by those of several."""
    by_key: dict[Any, list[Row]] = {}
    for row in rows:
        by_key.setdefault(itemgetter(*names)(row), []).append(row)
    return by_key


def share(part: float | None, whole: float | None) -> float:
    """A part in percent of a whole; 0 if either is unknown."""
    return 100 * part / whole if part and whole else 0.0


def cells(row: Row, names: str) -> Row:
    """The `numbers` of a finding; `names`: of columns of the row, separated by spaces."""
    return {name: row[name] for name in names.split()}


def span_of(rows: Sequence[Row]) -> dict[str, Any]:
    """The fields of a finding with the times of rows, and with the first packet if they have it.

    Packet numbers start at 1 in each file: the first packet is that of the first time.
    """
    ends = {"first_time": min, "last_time": max}
    span = {n: end(row[n] for row in rows) for n, end in ends.items() if n in rows[0]}
    if "first_packet" in rows[0]:
        span["first_packet"] = min(rows, key=itemgetter("first_time"))["first_packet"]
    return span


def of_clients(client_ids: Sequence[str | None]) -> dict[str, Any]:
    """The fields of a finding that name its clients."""
    return {"subject": clients(client_ids), "clients": known(client_ids)}


def of_ends(rows: Sequence[Row], names: str) -> dict[str, Any]:
    """The same for the clients of rows, with the `cells` of the first row, and their `span_of`."""
    named = of_clients(list(dict.fromkeys(row["client_id"] for row in rows)))
    return named | {"numbers": cells(rows[0], names)} | span_of(rows)


def of_client(row: Row, names: str) -> dict[str, Any]:
    """The same for the client of one row."""
    return of_ends([row], names)


class Advice(NamedTuple):
    """The likely cause of a finding, and what helps: fields of `Finding`."""

    cause: str
    side: Side
    setting: str | None
    change: str
    reference: str

"""Builders of SQL text for answers.

Exchanges can be grouped by any of their columns, and by derived columns:

    broker     address and port of the broker: "10.0.0.9:9092"
    client     address of the client
    software   name and version of the client's software, from ApiVersions (KIP-511)
    topic      each topic of the exchange; an exchange counts once for each of its topics
    minute     start of the minute of the request; so for any length of time: 10s, 5m, hour, in
               the time zone in which times are shown

A query is put together from constants, each the SQL of a subquery in parentheses, and from the
expressions of this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from analysis.columns import Column
from analysis.kafka.normal import (
    NORMAL_ERRORS,
    NORMAL_FOR_TOPICS,
    NORMAL_IN_API,
)
from analysis.sql.intervals import interval_start, is_interval
from dissector.arguments import texts
from dissector.errors import DissectorError, did_you_mean

By: TypeAlias = str | Sequence[str]
"""A column to group by, or several."""

QUANTILES: Final = (0.5, 0.95, 0.99)
"""Interpolated linearly, as in NumPy, pandas and quantile_cont of SQL."""
_LARGEST_LEAD_MS: Final = 1000
"""Clocks that NTP keeps differ by less."""


def literal(value: str | int | None) -> str:
    """A value in SQL."""
    if isinstance(value, str):
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    return "null" if value is None else str(value)


def literals(values: Iterable[str]) -> str:
    """A list of texts in SQL: ``('Fetch', 'ShareFetch')``."""
    return f"({', '.join(map(literal, values))})"


def column_names(by: By) -> tuple[str, ...]:
    """The columns to group by; `by` may be the name of one column.

    Raises DissectorError for anything else than names.
    """
    return texts("by", by)


def checked_names(by: By, columns: Iterable[str]) -> tuple[str, ...]:
    """The columns to group by.

    Raises DissectorError if there are none, or one is repeated or not among `columns`.
    """
    names, known = column_names(by), list(columns)
    has_time = _time_column(known) is not None
    if not names:
        raise DissectorError("no column to group by; pass at least one")
    for name in names:
        if name not in known and not (has_time and is_interval(name)):
            intervals = "; or an interval such as minute or 10s" if has_time else ""
            raise DissectorError(
                f"no column {name} to group by; choose from: {', '.join(known)}{intervals}"
                f"{did_you_mean(name, known)}"
            )
        if names.count(name) > 1:
            raise DissectorError(f"column {name} is repeated; pass each column to group by once")
    return names


def identifier(name: str) -> str:
    """The name of a column in SQL."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def quoted(columns: By) -> list[str]:
    """Names of columns in SQL."""
    return [identifier(name) for name in column_names(columns)]


def ms_between(start: str, end: str) -> str:
    """SQL for the time from `start` to `end`, in ms; null if either is null."""
    return f"(epoch_ns({end}) - epoch_ns({start})) / 1e6"


def sum_of_ms(column: str) -> str:
    """SQL for the sum of times in ms, added in ns: a sum of floats depends on the order of rows.

    A stored table may have times beyond 64 bits. They count as null.
    """
    return f"sum(try_cast(round({column} * 1e6) as bigint)) / 1e6"


def not_negative(value: str) -> str:
    """SQL for `value`, or 0 if it is negative; null if it is null."""
    return f"case when {value} < 0 then 0 else {value} end"


def first_record_age_ms(time: str) -> str:
    """SQL for the age of the first record of a batch at `time`, in ms.

    Null if the timestamp is not that of the record's creation, or if the clock of the producer is
    ahead by more than `_LARGEST_LEAD_MS`; 0 if it is ahead by less.
    """
    return f"""case
      when coalesce(timestamp_type, 'create_time') = 'create_time'
        and {ms_between("base_timestamp", time)} >= -{_LARGEST_LEAD_MS}
      then {not_negative(ms_between("base_timestamp", time))} end"""


def by_api(values: Mapping[str, str | int | None]) -> str:
    """SQL for the value of the column `api` in a map; null if the map does not contain it."""
    pairs = (f"{literal(name)}: {literal(value)}" for name, value in values.items())
    return f"map {{{', '.join(pairs)}}}[api]"


def client_waits_for_quota() -> str:
    """SQL: whether the client itself waits for the throttle time of a response (KIP-219).

    In older versions of an API, the broker delays the response.
    """
    from dissector.protocol import registry

    versions = by_api({api.name: api.client_throttles[0] for api in registry.all_apis()})
    return f"api_version >= coalesce({versions}, 0)"


def quantiles(column: str, prefix: str = "", of: Sequence[float] = QUANTILES) -> dict[str, str]:
    """SQL for quantiles of a column, by name: `prefix` and p50_ms, p95_ms, ..."""
    # One aggregate for all quantiles: it holds the values.
    aggregate = f"quantile_cont({column}, {list(of)})"
    return {f"{prefix}p{q * 100:.0f}_ms": f"{aggregate}[{n}]" for n, q in enumerate(of, 1)}


def grouped(rows: str, by: By, order: str = "", **columns: str) -> str:
    """A query for groups of rows: the columns of `by`, then the others, each with its aggregate.

    `order`: the order of the groups, after the time if `by` has one; ties are in order of `by`.
    """
    key = quoted(by)
    names = column_names(by)
    intervals = [identifier(name) for name in names if is_interval(name)]
    aggregates = [
        f"{aggregate} as {name}" for name, aggregate in columns.items() if name not in names
    ]
    ordered = f"order by {', '.join([*intervals, order, *key])}" if order else ""
    return f"select {', '.join([*key, *aggregates])} from {rows} group by all {ordered}"


def by_frequency(column: str) -> str:
    """SQL for the values of a column, separated by commas, the most frequent first."""
    entry = f"(-entry.value::bigint, {natural('entry.key::varchar')}, entry.key::varchar)"
    counts = f"[{entry} for entry in map_entries(histogram({column}))]"
    return f"array_to_string([entry[3] for entry in list_sort({counts})], ', ')"


def natural(text: str) -> str:
    """SQL by which texts are ordered with their numbers in order: 3.9 before 3.10."""
    padded = "case when regexp_full_match(part, '[0-9]+') then lpad(part, 20, '0') else part end"
    return f"[{padded} for part in regexp_extract_all({text}, '[0-9]+|[^0-9]+')]"


def first_packet(time: str = "request_time") -> str:
    """SQL for the packet of the first request of a group. `time`: a time by which requests are
    ordered. Packet numbers start at 1 in each file, so the smallest may be that of a later one."""
    return f"arg_min(request_packet, ({time}, request_packet))"


EXCHANGE: Final = "connection_id, correlation_id, time"
"""SQL: what identifies the exchange of a row. A client may use a correlation id again."""


def of_exchange(column: str, time: str, table: str) -> str:
    """SQL for a column of `exchanges`, by `EXCHANGE` of the rows of `table`.

    `time`: the column of `exchanges` that is the time in `table`. If several exchanges have the
    same ids and time, the first one counts.
    """
    return f"""(
      select connection_id, correlation_id, {time} as time,
        arg_min_null({column}, nth) as {column} from exchanges
      where (connection_id, correlation_id, {time}) in (select ({EXCHANGE}) from {table})
      group by all)"""


def with_columns(rows: str, by: By, table: str, *added: str) -> str:
    """SQL of rows with every column of `by`; a list of texts becomes one text.

    `rows`: SQL of rows, or the name of a table. They have the columns of `table`, unless it is
    empty, and those in `added`. The query may need the table `connections`. Raises DissectorError
    if `by` is empty, repeats a column, or names a column that the rows do not have and that cannot
    be derived from them.
    """
    from dissector.tables import TABLES

    given = [*(TABLES[table].schema.names if table else ()), *added]
    derived = [n for n, (source, _) in _DERIVED.items() if source in given and n not in given]
    by = checked_names(by, (*given, *derived))
    computed = "".join(
        f", {_derived(name, given)} as {identifier(name)}" for name in by if name not in given
    )
    texts = "replace (array_to_string(topics, ', ') as topics)" if "topics" in by else ""
    software = f"left join {SOFTWARE} using (connection_id)" if "software" in by else ""
    return f"(select * {texts}{computed} from {rows} as given {software})"


def is_time(name: str) -> bool:
    """Whether a column of exchanges to group by has times."""
    from dissector.tables import EXCHANGES, TIME

    return is_interval(name) or (
        name in EXCHANGES.schema.names and EXCHANGES.schema.field(name).type == TIME
    )


def _time_column(columns: Sequence[str]) -> str | None:
    """The column that an interval divides."""
    return next((name for name in ("request_time", "time") if name in columns), None)


def _derived(name: str, columns: Sequence[str]) -> str:
    """SQL for a derived column."""
    if name in _DERIVED:
        return _DERIVED[name][1]
    return interval_start(name, str(_time_column(columns)))


def extents(*, is_filtered: bool) -> str:
    """SQL: rows with first_time, last_time, client_bytes and broker_bytes, which together have the
    time range and the bytes of a capture, as the summary shows them.

    `is_filtered`: those of the selected exchanges, because their connections may have begun before
    the selection, and lasted longer.
    """
    if not is_filtered:
        return "connections"
    return """(
      select coalesce(request_time, response_time) as first_time,
        coalesce(response_end_time, request_end_time) as last_time,
        coalesce(request_bytes, 0) as client_bytes, coalesce(response_bytes, 0) as broker_bytes
      from exchanges)"""


def endpoint(side: str) -> str:
    """SQL for address and port of the client or broker as one text; IPv6 in brackets."""
    address = f"{side}_ip"
    shown = f"case when contains({address}, ':') then '[' || {address} || ']' else {address} end"
    return f"{shown} || ':' || {side}_port"


PER_SECOND: Final = """nullif(count(*) - 1, 0)
  / greatest((epoch_ns(max(request_time)) - epoch_ns(min(request_time))) / 1e9, 1)"""
"""SQL: requests per second of a group of exchanges, from the first to the last, which are taken as
at least one second apart: a few requests at the start of a connection are not a high rate."""

PER_SECOND_COLUMN: Final = Column(
    "per_second", "double", "requests per second, over at least 1 s; null for a single request"
)

_IS_NORMAL_IN_API: Final = " or ".join(
    f"error = {literal(error)} and api = {literal(api)}" for error, api in NORMAL_IN_API
)
_IS_NORMAL_FOR_TOPIC: Final = " or ".join(
    f"error = {literal(error)} and api = {literal(api)} and topic "
    + (f"in {literals(topics)}" if topics else "is not null")
    for (error, api), topics in NORMAL_FOR_TOPICS.items()
)
IS_NORMAL: Final = (
    f"coalesce(error in {literals(NORMAL_ERRORS)} or {_IS_NORMAL_IN_API}"
    f" or {_IS_NORMAL_FOR_TOPIC}, false)"
)
"""SQL: whether a row of `errors` is part of normal operation, as `analysis.kafka.normal` has it."""

PROBLEM_RESPONSES: Final = f"""(
  select distinct connection_id, correlation_id, time as response_time, true as is_problem
  from errors where not {IS_NORMAL})"""
"""SQL: the responses with an error that is not part of normal operation. Their exchanges have the
same connection_id, correlation_id and response_time."""

CLIENT_IDS: Final = """(
  select connection_id, arg_min(client_id, nth) as client_id from exchanges group by all)"""
"""SQL: the client id of each connection, that of its first exchange."""

SOFTWARE: Final = """(
  select connection_id, software_name || coalesce(' ' || software_version, '') as client_software
  from connections where software_name is not null)"""
"""SQL: name and version of the client's software by connection_id, if ApiVersions has them."""

SECURITY_PROTOCOL: Final = """case when sasl_mechanism is not null then 'SASL_' else '' end
  || case when protocol = 'tls' or tls_version is not null then 'SSL' else 'PLAINTEXT' end"""
"""SQL: the security protocol of a row of `connections`, as a listener of Kafka names it."""

CLIENT: Final = Column("client", "string", "address of the client")
BROKER: Final = Column("broker", "string", "address and port of the broker")
CLIENT_SOFTWARE: Final = Column(
    "software", "string", "name and version of the client's software, from ApiVersions"
)

_DERIVED: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "broker": ("broker_ip", endpoint("broker")),
        "client": ("client_ip", "client_ip"),
        "software": ("connection_id", "client_software"),
        "topic": (
            "topics",
            "unnest(case when len(given.topics) > 0 then given.topics else [null] end)",
        ),
    }
)
"""Derived columns: the column that each needs, and its SQL."""

"""Trust: how much of a capture could be read, and what the other answers cannot know of it.

Each row is one way in which a capture falls short, with how often it did out of how many, so that
what is whole is told as well. A hole, or a packet cut by a snapshot length, takes messages from all
other answers; a flow of which one side is missing takes every latency; what is encrypted, or newer
than the definitions, is counted and no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.answers.unanswered import EXPLAINED
from analysis.sql.expressions import shaped
from analysis.sql.query import Tables, asking
from dissector.tables import TableColumn

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: Final = (
    TableColumn("flaw", pa.string(), "in what way the capture falls short"),
    TableColumn("count", pa.int64(), "how often it does"),
    TableColumn("of", pa.int64(), "out of how many; null for problems of other kinds"),
    TableColumn("bytes", pa.int64(), "bytes that it concerns, where they are known", "bytes"),
    TableColumn("detail", pa.string(), "what is worst, or first, of it"),
)


def trust(tables: Tables) -> pd.DataFrame:
    """A row for each way to fall short, also where nothing does; then the kinds of problems.

    The columns are `COLUMNS`. Without connections there are only the problems.
    """
    import pandas as pd

    with asking(tables, ("connections", "exchanges", "batches", "problems")) as ask:
        flaws = [ask(query) for query in _FLAWS]
        problems = ask(_PROBLEMS)
    if not flaws[0]["of"].iloc[0]:
        return shaped(problems, COLUMNS)
    return shaped(pd.concat([*flaws, problems], ignore_index=True), COLUMNS)


def _flaw(name: str, rows: str, fault: str, detail: str = "null", bytes: str = "null") -> str:
    """A query for one row: how many rows have the fault, and what is to be said of these."""
    return f"""
      with every as (select *, coalesce({fault}, false) as faulty from {rows}),
      those as (from every where faulty)
      select '{name}' as flaw, count(*) filter (faulty) as count, count(*) as "of",
        (select {bytes} from those limit 1)::bigint as bytes,
        (select {detail} from those limit 1) as detail
      from every"""


def _most_frequent(value: str) -> str:
    """The three that are most frequent, by comma."""
    return f"""
      (select string_agg(each, ', ' order by place) from (
        select {value} as each, row_number() over (order by count(*) desc, min(nth)) as place
        from those group by each) where place <= 3)"""


_CONNECTIONS: Final = """(
  select *, coalesce(client_bytes, 0) + coalesce(broker_bytes, 0) as size,
    coalesce(client_lost_bytes, 0) + coalesce(broker_lost_bytes, 0) as lost
  from connections)"""
_KAFKA: Final = f"(from {_CONNECTIONS} where protocol = 'kafka')"
_REQUESTS: Final = f"""(
  select nth, why from exchanges left join {EXPLAINED} as explained using (nth)
  where exchanges.status != 'request_missing')"""

_FLAWS: Final = (
    _flaw(
        "connections of no known protocol", _CONNECTIONS, "protocol = 'unknown' and size > 0",
        "'most with port ' || mode(broker_port)", "coalesce(sum(size), 0)",
    ),
    _flaw(
        "connections encrypted", _CONNECTIONS, "protocol = 'tls'",
        "'a key log decrypts them'", "coalesce(sum(size), 0)",
    ),
    _flaw("connections begun before the capture", _KAFKA, "not opened"),
    _flaw(
        "connections with one side only", _KAFKA, "client_packets = 0 or broker_packets = 0",
        "'no latency is known of them'",
    ),
    _flaw(
        "connections with holes", _KAFKA, "lost > 0",
        "'most in connection ' || arg_min(connection_id, (-lost, nth))", "coalesce(sum(lost), 0)",
    ),
    _flaw(
        "exchanges not decoded", "exchanges", "status = 'undecoded'",
        _most_frequent("coalesce(api || ' ' || api_version, 'an unknown API')"),
    ),
    _flaw("responses without their request", "exchanges", "status = 'request_missing'"),
    _flaw(
        "requests whose answer may not be in the capture", _REQUESTS,
        "why in ('loss', 'one_sided', 'capture_end')", _most_frequent("why"),
    ),
    _flaw(
        "batches with a wrong checksum", "batches", "not crc_ok",
        "'first in ' || arg_min(topic || '-' || partition, nth)", "coalesce(sum(bytes), 0)",
    ),
)  # fmt: skip

_PROBLEMS: Final = """
  select 'problem: ' || stage || ' ' || kind as flaw,
    sum(coalesce(problems.count, 1))::bigint as count, null::bigint as "of",
    coalesce(sum(bytes), 0) as bytes, arg_min(detail, nth) as detail
  from problems group by stage, kind order by 2 desc, min(nth)"""

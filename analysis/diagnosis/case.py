"""The capture under diagnosis: answers and queries, each computed once."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from analysis.answers import ANSWERS, select
from analysis.answers.network import LINKS
from analysis.columns import resolved
from analysis.diagnosis.time import COLUMNS, time_of_clients
from analysis.diagnosis.words import rows_by
from analysis.sql.context import ALL_EXCHANGES
from analysis.sql.expressions import endpoint, extents, literal, ms_between
from analysis.sql.query import Row, row_dicts, shaped
from dissector.packets.paths import input_name
from dissector.protocol.structures import METADATA_TOPIC
from dissector.redaction import without_credentials
from dissector.tables.arrow import rows_where

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.compute as pc

HOSTS: Final = f"""
  select coalesce(client_id, '') as client_id, client_ip, count(*) as requests,
    {ms_between("min(request_time)", "max(greatest(response_end_time, request_end_time))")}
      as span_ms
  from exchanges where request_time is not null group by all"""
"""SQL: requests of each client id at each address, and the time from the first request to the last
message."""

LAST_MESSAGE: Final = """
  select max(epoch_ns(greatest(response_end_time, response_time, request_time))) as last_time
  from exchanges"""


FILES: Final = f"select distinct capture from {ALL_EXCHANGES} limit 2"
"""SQL: two of the files, also of exchanges that a filter does not select."""

CONTROLLERS: Final = f"""
  select distinct {endpoint("broker")} as broker from exchanges
  where api in ('BrokerRegistration', 'BrokerHeartbeat', 'ControllerRegistration', 'Vote',
      'BeginQuorumEpoch', 'EndQuorumEpoch', 'FetchSnapshot')
    or (api = 'Fetch' and list_contains(topics, {literal(METADATA_TOPIC)}))"""
"""SQL: listeners of controllers. Kafka's definitions of these messages list no other listener
(KIP-595, KIP-631), and brokers do not serve the topic."""


class Case:
    """Tables of a capture, as the rules see them: rows are dicts, with times in ns."""

    def __init__(self, tables: duckdb.DuckDBPyConnection) -> None:
        """`tables`: a connection of `analysis.sql.query.connected` with all tables of `TABLES`."""
        self._tables = tables
        self._answers: dict[str, pa.Table] = {}
        self._rows: dict[str, list[Row]] = {}
        """By the command of an answer, or the query."""
        self._indexes: dict[tuple[str, str], dict[Any, list[Row]]] = {}
        """By the same, and the names of columns."""

    def table(self, command: str) -> pa.Table:
        """The result of an answer: ``throttle --by client_id,api``, as on the command line."""
        if command not in self._answers:
            name, *given = shlex.split(command)
            names = [word.removeprefix("--") for word in given[::2]]
            options: Row = dict(zip(names, given[1::2], strict=True))
            if "by" in options:
                options["by"] = options["by"].split(",")
            self._answers[command] = ANSWERS[name].arrow(self._tables, **options)
        return self._answers[command]

    def answer(self, command: str) -> list[Row]:
        """The rows of `table`."""
        if command not in self._rows:
            self._rows[command] = row_dicts(self.table(command))
        return self._rows[command]

    def answer_where(self, command: str, condition: pc.Expression) -> list[Row]:
        """The rows of `table` that meet an expression, for answers of which most rows are no
        finding: those with a row for each client take a kilobyte per row as dicts."""
        return row_dicts(rows_where(self.table(command), condition))

    def rows(self, query: str) -> list[Row]:
        """The rows of a query in SQL."""
        if query not in self._rows:
            self._rows[query] = row_dicts(select(self._tables, query))
        return self._rows[query]

    def matching(self, source: str, row: Row, names: str) -> list[Row]:
        """The rows of a query, or of the command of an answer, with the same `cells` as a row."""
        if (source, names) not in self._indexes:
            rows = self.answer(source) if source.split()[0] in ANSWERS else self.rows(source)
            self._indexes[source, names] = rows_by(rows, *names.split())
        return self._indexes[source, names].get(itemgetter(*names.split())(row), [])

    def span_of_connections(self, rows: Sequence[Row], condition: str) -> dict[str, Any]:
        """The times of the first and of the last packet of connections, as fields of a finding.

        `rows`: their client ids and brokers. `condition`: SQL on the columns of `LINKS`.
        """
        query = f"""
          select client_id, {endpoint("broker")} as broker,
            min(first_time) as first_time, max(last_time) as last_time
          from {LINKS} where {condition} group by all"""
        links = [link for row in rows for link in self.matching(query, row, "client_id broker")]
        return {
            "first_time": min((link["first_time"] for link in links), default=None),
            "last_time": max((link["last_time"] for link in links), default=None),
        }

    def file_of_response(self, packet: int | None, time: int) -> str | None:
        """The file with the first packet of a response: its number there, and its time.

        None if all exchanges of the capture are in one file, and if the file is unknown: the tables
        have that of the request, and numbers start at 1 in each file.
        """
        if packet is None or len(self.rows(FILES)) < 2:
            return None
        files = self.rows(f"""
          select distinct capture from exchanges
          where response_packet = {packet} and epoch_ns(response_time) = {time}
            and coalesce(request_packet < response_packet, true)""")
        return without_credentials(input_name(files[0]["capture"])) if len(files) == 1 else None

    def time_of_clients(self) -> list[Row]:
        """Where the time of each client went: `analysis.diagnosis.time`."""
        rows = select(self._tables, time_of_clients())
        return row_dicts(shaped(rows, resolved(COLUMNS)))

    def time_range(self, *, is_filtered: bool) -> tuple[int | None, int | None]:
        """Times of the first and of the last packet, in ns, as in the summary; None without any.

        `is_filtered`: times of the selected exchanges instead.
        """
        (row,) = self.rows(f"""
          select epoch_ns(min(first_time)) as first_time, epoch_ns(max(last_time)) as last_time
          from {extents(is_filtered=is_filtered)}""")
        return row["first_time"], row["last_time"]

    @cached_property
    def last_message(self) -> int | None:
        """Time of the last message, in ns; None without messages."""
        last: int | None = self.rows(LAST_MESSAGE)[0]["last_time"]
        return last

    @cached_property
    def hosts(self) -> dict[tuple[str, str], Row]:
        """Requests and span_ms by client id, which is empty instead of null, and address."""
        return {(row["client_id"], row["client_ip"]): row for row in self.rows(HOSTS)}

    @cached_property
    def followers(self) -> set[str | None]:
        """Client ids of brokers that fetch from the leaders of their partitions."""
        query = "select distinct client_id from partitions where replica_id >= 0"
        return {row["client_id"] for row in self.rows(query)}

    @cached_property
    def _controllers(self) -> set[str]:
        return {row["broker"] for row in self.rows(CONTROLLERS)}

    def role(self, address: str) -> Literal["broker", "controller"]:
        """The role of the listener at an address with a port."""
        return "controller" if address in self._controllers else "broker"

    @property
    def requests(self) -> int:
        """Number of requests in the capture."""
        return sum(row["requests"] for row in self.hosts.values())

    def requests_of(self, client_id: str | None) -> int:
        """Number of requests of a client."""
        return sum(row["requests"] for row in self._hosts_of(client_id))

    def addresses_of(self, client_id: str | None) -> set[str]:
        """The addresses of a client."""
        return {row["client_ip"] for row in self._hosts_of(client_id)}

    def span_ms(self, client_id: str | None) -> float:
        """Time from the first request of a client to its last message, in ms; the sum of its
        hosts."""
        return float(sum(row["span_ms"] or 0 for row in self._hosts_of(client_id)))

    def _hosts_of(self, client_id: str | None) -> list[Row]:
        return self.matching(HOSTS, {"client_id": client_id or ""}, "client_id")

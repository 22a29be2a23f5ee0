"""One record across the wire: produced, acknowledged, fetched by each client, committed.

A record is identified by its topic, partition and offset. `trace` finds records by these, by their
key, or by a header, and returns the events of each record in order of time:

    produced       first byte of the Produce request
    acknowledged   first byte of its response without an error for the partition
    refused        first byte of its response with an error
    replicated     first byte of the Fetch response with which another broker gets the record
    fetched        first byte of the Fetch or ShareFetch response with which a client gets it
    committed      response to the first commit of a group beyond the record; of offsets in a
                   transaction, the response to the EndTxn that commits it

A record that was produced with acks=0 has no offset. Its fetches are known only if the key or the
header finds them, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from analysis.answers import ArrowTable, Tables
from analysis.answers.lag import DECIDED
from analysis.columns import Column, columns_of, resolved
from analysis.frames import frame
from analysis.sql.expressions import BROKER, CLIENT, endpoint, literal, ms_between
from analysis.sql.query import connected, select, shaped
from analysis.sql.record_flow import GROUPS_OF_READERS
from dissector.arguments import integer, text
from dissector.errors import DissectorError

if TYPE_CHECKING:
    import pandas as pd

TABLES: Final = ("records", "partitions", "exchanges", "transactions")
"""The tables that a trace needs."""
LIMIT: Final = 10
"""Maximum number of records of a trace."""
COLUMNS: Final = (
    *columns_of("records", "topic", "partition", "offset"),
    Column("event", "string", "produced, acknowledged, refused, replicated, fetched or committed"),
    Column("time", "time", "time of the event"),
    Column("since_produced_ms", "double", "time since the first event of the record", "ms"),
    Column("since_previous_ms", "double", "time since the previous event", "ms"),
    Column("client_id", "string", "client id"),
    CLIENT,
    BROKER,
    Column("group_id", "string", "group that commits, or for which the client fetches"),
    Column("error", "string", "name of the error code of a refusal"),
    *columns_of("exchanges", "connection_id", "correlation_id"),
    Column("packet", "int64", "packet number of the message's first byte"),
)
ESSENTIAL: Final = ("topic", "partition", "offset", "event", "since_produced_ms", "client_id")
USEFUL: Final = ("group_id", "since_previous_ms", "packet", "error")


def trace(
    tables: Tables, *, header: str | None = None, key: str | None = None,
    topic: str | None = None, partition: int | None = None, offset: int | None = None,
    limit: int = LIMIT,
) -> pd.DataFrame:  # fmt: skip
    """The events of the records that meet all conditions, at most `limit` records.

    `tables`: a capture, or its tables `records`, `partitions`, `exchanges` and `transactions`.
    `header`: NAME=VALUE, with ``*`` for any text in VALUE. `key`: the key as text, likewise. Raises
    DissectorError if there is no condition on the record, if the header has no value, or if another
    value is invalid.
    """
    return frame(
        events(
            tables, header=header, key=key, topic=topic, partition=partition, offset=offset,
            limit=limit,
        )
    )  # fmt: skip


def events(tables: Tables, *, limit: int = LIMIT, **wanted: Any) -> ArrowTable:
    """The Arrow table of `trace`. `wanted`: its other arguments."""
    limit = integer("limit", limit, 1)
    condition = _condition(**wanted)
    with connected(tables, TABLES) as connection:
        rows = select(connection, _QUERY.format(condition=condition, limit=limit))
    return shaped(rows, resolved(COLUMNS))


def _condition(
    header: str | None, key: str | None, topic: str | None, partition: int | None,
    offset: int | None,
) -> str:  # fmt: skip
    """SQL: whether a row of `records` is of a wanted record. Raises DissectorError."""
    for name, given in (("header", header), ("key", key), ("topic", topic)):
        if given is not None:
            text(name, given)
    for name, position in (("partition", partition), ("offset", offset)):
        if position is not None:
            integer(name, position, 0)
    conditions = []
    if header is not None:
        name, is_given, value = header.partition("=")
        if not name or not is_given:
            raise DissectorError(f"header {header!r} is not NAME=VALUE")
        conditions.append(
            f"len(list_filter(headers, lambda h: h.key = {literal(name)} and "
            f"{_matches('h.value', value)})) > 0"
        )
    if key is not None:
        conditions.append(_matches("key", key))
    if offset is not None:
        conditions.append(f'"offset" = {offset}')
    if not conditions:
        raise DissectorError("select a record by its header, its key or its offset")
    if topic is not None:
        conditions.append(f"topic = {literal(topic)}")
    if partition is not None:
        conditions.append(f"partition = {partition}")
    return " and ".join(conditions)


def _matches(column: str, text: str) -> str:
    """SQL: whether bytes are a text, in which ``*`` stands for any text."""
    if "*" not in text:
        return f"{column} = unhex('{text.encode().hex()}')"
    pattern = "(..)*".join(part.encode().hex().upper() for part in text.split("*"))
    return f"regexp_full_match(hex({column}), '{pattern}')"


_EXCHANGE: Final = f"""e.client_id, e.client_ip as client, {endpoint("broker")} as broker,
  e.connection_id, e.correlation_id"""

_QUERY: Final = f"""(
  with chosen as (
    select topic, partition, "offset", api, "time", connection_id, correlation_id
    from records where record_kind is null and {{condition}}),
  -- A record that was produced with acks=0 has no offset.
  names as (
    select topic, partition, "offset", min("time") as first
    from chosen group by all order by first limit {{limit}}),
  seen as (
    select records.topic, records.partition, records."offset", records.api, records."time",
      connection_id, correlation_id
    from records join names on records.topic = names.topic
      and records.partition = names.partition and records."offset" = names."offset"
    union
    from chosen where "offset" is null),
  messages as (
    select distinct seen.* exclude (connection_id, correlation_id), {_EXCHANGE},
      p.response_time, p.error_code, p.error, p.replica_id, e.request_packet, e.response_packet
    from seen join exchanges as e
      on e.connection_id = seen.connection_id
        and e.correlation_id is not distinct from seen.correlation_id
        and seen."time" = case seen.api when 'Produce' then e.request_time
          else e.response_time end
      left join partitions as p on p.connection_id = seen.connection_id
        and p.correlation_id is not distinct from seen.correlation_id
        and p.topic = seen.topic and p.partition = seen.partition and p.api = seen.api
        and p."time" is not distinct from e.request_time),
  readers as (
    select connection_id, topic, partition, string_agg(group_id, ', ' order by nth) as group_id
    from {GROUPS_OF_READERS} group by all),
  commits as (
    select names.topic, names.partition, names."offset", p.group_id,
      arg_min(p, coalesce(p.response_time, p."time")) as p
    from names join (
        from partitions where api = 'OffsetCommit' and error_code = 0
        union all by name from {DECIDED}) as p
      on p.topic = names.topic and p.partition = names.partition and p."offset" > names."offset"
    where p."time" >= names.first
    group by all),
  events as (
    select topic, partition, "offset", 'produced' as event, "time", null as group_id,
      null as error, request_packet as packet, client_id, client, broker, connection_id,
      correlation_id, 0 as rank
    from messages where api = 'Produce'
    union all by name
    select topic, partition, "offset",
      case when coalesce(error_code, 0) = 0 then 'acknowledged' else 'refused' end as event,
      response_time as "time", case when error_code != 0 then error end as error,
      response_packet as packet, client_id, client, broker, connection_id, correlation_id,
      1 as rank
    from messages where api = 'Produce' and response_time is not null
    union all by name
    select topic, partition, "offset",
      case when replica_id is null then 'fetched' else 'replicated' end as event, "time",
      case when replica_id is null then group_id end as group_id, response_packet as packet,
      client_id, client, broker, connection_id, correlation_id, 2 as rank
    from messages left join readers using (connection_id, topic, partition)
    where api != 'Produce'
    union all by name
    select topic, partition, "offset", 'committed' as event,
      coalesce(p.response_time, p."time") as "time", commits.group_id,
      e.response_packet as packet, {_EXCHANGE}, 3 as rank
    from commits join exchanges as e on e.connection_id = p.connection_id
      and e.correlation_id is not distinct from p.correlation_id
      and e.request_time = p."time")
  select *,
    {ms_between('first_value("time") over record', '"time"')} as since_produced_ms,
    {ms_between('lag("time") over record', '"time"')} as since_previous_ms
  from events
  window record as (partition by topic, partition, "offset" order by "time", rank, packet)
  order by min("time") over (partition by topic, partition, "offset"), topic, partition,
    "offset", "time", rank, packet)"""

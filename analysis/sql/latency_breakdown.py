"""How much of a latency was no work: the waiting that is by design, and the waiting for others.

Three things make a request wait that say nothing of how fast its broker is:

- A long poll. A Fetch waits up to max_wait_ms until there is something to return. One that returns
  no records waited all the time, also where it ends with an error. One that returns records waited
  until the first batch of one of its partitions could be read. If the Produce of that batch is in
  the capture, this is when its response was seen. Else it is the timestamp of the batch, which is
  earlier by the time that the producer kept the batch, and which another clock took. A batch of a
  transaction whose marker follows in the same response could be read when that was written.
- The rest of a group. JoinGroup and SyncGroup are answered when the others have come (`groups`
  tells of them); how much of that was work cannot be told.
- What was asked before. A broker serves the requests of a connection one after the other, so that
  one sent behind a long poll waits for its answer as well.

The latency that is left, net of these, is what the network and the broker took.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import words
from analysis.sql.query import asking
from dissector.protocol import registry
from dissector.tables import TableColumn

if TYPE_CHECKING:
    import pandas as pd

GROUP_BARRIERS: Final = tuple(api.name for api in registry.all_apis() if api.is_group_barrier)
"""Their latency ends when others act: net of wait, nothing is known of it."""

WAIT_COLUMNS: Final = (
    TableColumn("behind_ms", pa.float64(), "wait for earlier requests of the connection", "ms"),
    TableColumn("poll_ms", pa.float64(), "wait by design: for data, or for other members", "ms"),
    TableColumn("net_ms", pa.float64(), "latency excluding both waits", "ms"),
)
"""The columns that `WAITED` has beside those of `exchanges`."""

WAITS: Final = tuple(column.name for column in WAIT_COLUMNS)
"""Their names."""

WAITED: Final = f"""(
  with responses as (
    select connection_id, correlation_id, request_time as time, response_time from exchanges
    where api = 'Produce' and response_time is not null),
  produced as (
    select topic, partition, base_offset, min(epoch_ns(response_time)) as written
    from batches join responses using (connection_id, correlation_id, time)
    where api = 'Produce' and base_offset is not null group by all),
  readable as (
    select connection_id, correlation_id, time, topic, partition, base_offset,
      coalesce(written, epoch_ns(max_timestamp)) as written,
      -- Of a transaction: when the marker behind it was written.
      case when is_transactional and not is_control then
        min(case when is_control then epoch_ns(max_timestamp) end) over (
          partition by connection_id, correlation_id, time, topic, partition, producer_id
          order by base_offset rows between 1 following and unbounded following) end as ended
    from batches left join produced using (topic, partition, base_offset)
    where api in ('Fetch', 'ShareFetch')),
  firsts as (
    select connection_id, correlation_id, time as response_time,
      arg_min(greatest(written, coalesce(ended, written)), (coalesce(base_offset, -1), written))
        as written
    from readable group by connection_id, correlation_id, time, topic, partition),
  fetched as (
    select connection_id, correlation_id, response_time, min(written) as written
    from firsts group by all),
  queued as (
    select *, epoch_ns(request_end_time) as asked, epoch_ns(response_time) as replied,
      -- The last response to those that were sent before.
      max(epoch_ns(response_time)) over (
        partition by connection_id order by request_end_time, nth
        rows between unbounded preceding and 1 preceding) as earlier
    from exchanges),
  begun as (
    select queued.* exclude (asked, replied, earlier),
      case when asked is null or replied is null then null
        when earlier is null then 0
        else greatest(least(earlier, replied) - asked, 0) / 1e6 end as behind_ms,
      latency_ms - behind_ms as own_ms,
      coalesce((written - asked) / 1e6, 0) - behind_ms as unwritten_ms
    from queued left join fetched on queued.connection_id = fetched.connection_id
      and queued.correlation_id = fetched.correlation_id
      and coalesce(queued.response_time = fetched.response_time, true)),
  polled as (
    select *,
      case when own_ms is null or api in {words(GROUP_BARRIERS)} then own_ms
        when max_wait_ms is null then 0
        when coalesce(record_bytes, 0) = 0
        then least(greatest(own_ms, 0), own_ms, max_wait_ms)
        else least(greatest(unwritten_ms, 0), own_ms, max_wait_ms) end as poll_ms
    from begun)
  select * exclude (own_ms, unwritten_ms),
    case when coalesce(api in {words(GROUP_BARRIERS)}, false) then null
      else own_ms - poll_ms end as net_ms
  from polled)"""
"""SQL of the exchanges, each with how much of its latency was no work; needs `batches`, too.

behind_ms  the broker was still at earlier requests of the connection
poll_ms    then it waited, by design; the rest of the latency for `GROUP_BARRIERS`
net_ms     what is left of the latency; null for `GROUP_BARRIERS`

All are DOUBLE, in ms, and null where there is no latency, or no time to tell the first by.
"""


def waits(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`WAITS` of each of the `exchanges`, by its index. Needs `exchanges` and `batches`."""
    with asking(tables, ("exchanges", "batches")) as ask:
        rows = ask(f"select {', '.join(WAITS)} from {WAITED} order by nth")
    return rows.set_axis(tables["exchanges"].index)

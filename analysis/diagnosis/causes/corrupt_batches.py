"""Batches with a wrong checksum that consumers get, for `recurring_errors`.

A broker checks the checksum of a batch when it writes it, but not when it returns it. If its disk
or memory damages the batch, the response has no error code. The consumer then raises an exception
(check.crcs), and does so again after a restart, because it cannot get past the offset. A follower
cannot copy the batch, either.

If any response contains the batch with the right checksum, only that copy of it was damaged on its
way. A client that does not compare checksums continues after the batch, as librdkafka does by
default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import (
    capital,
    cells,
    clients,
    listed,
    of_clients,
    rows_by,
    span_of,
    sql,
    within,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint, first_packet, literal
from analysis.sql.intermediate import intermediate_table
from analysis.sql.query import Row

CORRUPT: Final = intermediate_table(
    "corrupt_batches",
    f"""
  with damaged as (
    select batches.*, client_ip, {endpoint("broker")} as broker, request_packet
    from batches join exchanges using (connection_id, correlation_id)
    where batches.api in ('Fetch', 'ShareFetch') and not crc_ok and topic is not null
      and response_time = time)
  from damaged anti join (
    from batches where api in ('Fetch', 'ShareFetch') and crc_ok) as undamaged
    using (topic, partition, base_offset)
  where not exists (
    from partitions as later
    where later.api = 'Fetch' and later.client_id is not distinct from damaged.client_id
      and later.topic = damaged.topic and later.partition = damaged.partition
      and later."offset" > damaged.base_offset and later.time > damaged.time)""",
)
"""SQL: the batches of responses that no response contains with the right checksum, and behind which
the client does not continue."""

_ROWS: Final = f"""
  select broker, topic, partition, base_offset, count(*) as responses,
    list(distinct client_id order by client_id) as client_ids, {first_packet("time")}
      as first_packet, min(time) as first_time, max(time) as last_time
  from {CORRUPT} group by broker, topic, partition, base_offset
  order by responses desc, topic, partition, base_offset"""


def corrupt_batches(case: Case) -> Iterator[Finding]:
    """A finding for each broker that returns such batches."""
    yield from map(_finding, rows_by(case.rows(_ROWS), "broker").values())


def _finding(rows: list[Row]) -> Finding:
    row = rows[0]
    names = list(dict.fromkeys(name for each in rows for name in each["client_ids"]))
    where = f"partition {row['partition']} of topic `{row['topic']}`"
    others = listed(
        f"{each['topic']}-{each['partition']} at offset {each['base_offset']:,}"
        for each in rows[1:]
    )
    return Finding(
        severity="critical",
        **of_clients(names),
        sentence=f"{capital(clients(names))} cannot read past offset {row['base_offset']:,} of "
        f"{where}: the batch has a wrong checksum",
        evidence=f"{counted(row['responses'], 'response')} of {row['broker']}{within(row)} "
        f"{'contain' if row['responses'] > 1 else 'contains'} the batch, each with the wrong "
        "checksum." + (f" Others: {others}." if others else ""),
        numbers=cells(row, "topic partition base_offset"),
        cause="the disk or the memory of the broker damaged the batch after it was written; "
        "consumers raise an exception, although no response has an error",
        side="broker",
        change="Look at the kernel log and the disk of this broker. If another replica has the "
        "batch undamaged, let it lead the partition, and remove the damaged replica with "
        "kafka-reassign-partitions.sh. Otherwise set the offsets of the groups after the batch "
        "(kafka-consumer-groups.sh --reset-offsets); its records are lost.",
        reference="Kafka documentation: Record Batch; Consumer Configs, check.crcs",
        command=sql(f"""
          select client_id, topic, partition, base_offset, count(*) as responses from batches
          where not crc_ok and api in ('Fetch', 'ShareFetch') and topic = {literal(row["topic"])}
          group by all order by responses desc"""),
        requests=sum(each["responses"] for each in rows),
        **span_of(rows),
    )  # fmt: skip

"""Partitions whose first records a group skips, for `lost_records`.

A consumer learns of a new partition after metadata.max.age.ms, 5 minutes by default. Producers that
refresh their metadata earlier write to it meanwhile. Without a committed offset, and with
auto.offset.reset=latest, the consumer begins at the end of the partition. No response has an error
code, and no lag shows the records.

A group that starts also begins at the end of its partitions. So only records count that were
produced when it had read other partitions of the topic for some seconds.
"""

from __future__ import annotations

from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import capital, cells, clients, known, listed, span_of, sql, topics
from analysis.display.terminal import counted, moment_text
from analysis.sql.expressions import literal
from analysis.sql.query import Row
from analysis.sql.record_flow import GROUPS_OF_READERS

_START_S: Final = 5
"""Time in which a group begins to read all of its partitions, at several leaders."""

SKIPPED: Final = f"""
  with fetches as (
    select readers.group_id, partitions.* exclude (group_id)
    from partitions join (
      select distinct connection_id, topic, partition, group_id from {GROUPS_OF_READERS})
      as readers using (connection_id, topic, partition)
    where api = 'Fetch' and "offset" is not null),
  begins as (
    from fetches
    qualify row_number() over (partition by group_id, topic, partition order by time, nth) = 1),
  starts as (select group_id, topic, min(time) as since from begins group by all),
  latest as (
    select distinct connection_id, topic, partition, "offset" from partitions
    where api = 'ListOffsets' and asked_timestamp = -1 and error_code = 0),
  uncommitted as (
    select distinct group_id, topic, partition from partitions
    where api = 'OffsetFetch' and error_code = 0 and "offset" is null),
  -- A group that never commits begins again at each rebalance; the capture may lack its members.
  committed as (
    select distinct group_id, topic from partitions
    where api in ('OffsetCommit', 'OffsetFetch') and "offset" is not null)
  select group_id, topic, partition, "offset", any_value(begins.client_id) as client_id,
    count(*) as batches, min(base_offset) as base_offset,
    sum(produced.last_offset - base_offset + 1)::bigint as records,
    list_sort(list(distinct produced.client_id)) as producers,
    min(produced.time) as first_time, any_value(begins.time) as last_time
  from begins join starts using (group_id, topic)
    join latest using (connection_id, topic, partition, "offset")
    join uncommitted using (group_id, topic, partition) join committed using (group_id, topic)
    join (from batches where api = 'Produce' and error_code = 0) as produced
      using (topic, partition)
  where produced.time >= since + interval {_START_S} seconds and produced.time < begins.time
    and produced.last_offset < "offset" and coalesce(produced.topic_id = begins.topic_id, true)
  group by group_id, topic, partition, "offset" order by records desc, group_id, topic, partition"""
"""SQL: partitions at whose end a group begins, and the records before it that were produced while
it read the topic."""

_LATEST: Final = """
  select topic from partitions semi join (
    select topic, partition from partitions where api = 'OffsetFetch' and "offset" is null)
    using (topic, partition)
  where api = 'ListOffsets' and asked_timestamp = -1 limit 1"""
"""SQL: a row if a consumer may begin at the end of a partition. `SKIPPED` takes longer."""


def skipped_partitions(case: Case) -> list[Row]:
    """The rows of `SKIPPED`, that with the most records first."""
    return case.rows(SKIPPED) if case.rows(_LATEST) else []


def skipped_finding(rows: list[Row]) -> Finding:
    """A finding for the partitions of a group; the first one has skipped the most records."""
    row, records = rows[0], sum(each["records"] for each in rows)
    group, names = f"group `{row['group_id']}`", sorted({row["topic"] for row in rows})
    producers = sorted({name for row in rows for name in row["producers"] if name})
    places = listed(f"{each['topic']}-{each['partition']}" for each in rows)
    return Finding(
        severity="critical",
        subject=group,
        clients=known(dict.fromkeys(each["client_id"] for each in rows)),
        sentence=f"{capital(group)} skipped {counted(records, 'record')} of {topics(names)}: it "
        "began at the end of partitions that were new to it",
        evidence=f"Partitions: {places}. The first Fetch of {row['topic']}-{row['partition']}, at "
        f"{moment_text(row['last_time'])}, has offset {row['offset']:,}; offsets from "
        f"{row['base_offset']:,} on had been produced while the group read other partitions of the "
        "topic. It had no committed offset, and asked for the latest one."
        + (f" Producers: {clients(producers)}." if producers else ""),
        numbers=cells(row, "topic partition offset"),
        cause="auto.offset.reset is latest, and partitions were added: producers write to them "
        "before consumers know them",
        side="client",
        setting="auto.offset.reset=earliest",
        change="Set auto.offset.reset of the consumers to earliest, or to by_duration, before you "
        "add partitions: new groups then begin there, too. To read the skipped records, reset the "
        "offsets of these partitions (kafka-consumer-groups.sh --reset-offsets).",
        reference="Kafka documentation: Consumer Configs, auto.offset.reset; KIP-1106",
        command=sql(f"""
          select time, client_id, api, group_id, topic, partition, partitions.offset
          from partitions
          where api in ('OffsetFetch', 'ListOffsets', 'Fetch')
            and topic = {literal(row["topic"])} and partition = {row["partition"]}
          order by time, nth limit 20"""),
        requests=sum(each["batches"] for each in rows),
        **span_of(rows),
    )

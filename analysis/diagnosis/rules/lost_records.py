"""Lost records: a broker acknowledged records, and later gave their offsets to other records; or a
group skipped them.

An offset of a log is assigned once. If a Produce response has an offset that an earlier response
assigned to another batch, the log was truncated in between: the new leader did not have the records
that the previous leader acknowledged. Neither the producer nor the consumers get an error.

The rule examines only topics whose id is known (Metadata 10, Produce 13). A topic that was deleted
and created again, or a topic of the same name in another cluster, has the same offsets, too. The
number of lost records is a lower bound: the capture may lack the first batch after the truncation.

A group with auto.offset.reset=latest skips the first records of a partition that is added while it
runs. It learns of the partition after metadata.max.age.ms, and begins at its end. Only records
count that were produced some seconds after the group began to read the topic, and only if it had
committed offsets of other partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.skipped_partitions import skipped_finding, skipped_partitions
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import (
    Advice,
    cells,
    known,
    listed,
    rows_by,
    span_of,
    sql,
    topics,
    verb,
)
from analysis.display.terminal import counted, moment_text, time_text
from analysis.sql.expressions import first_packet, literal
from analysis.sql.query import Row

LOST: Final = f"""
  with ids as (
    select topic, count(distinct topic_id) as ids, min(topic_id) as id from (
      select topic, topic_id from batches union all select topic, topic_id from topics)
    group by topic),
  acknowledged as (
    -- A batch that is sent again gets its first offset again (KIP-98).
    select topic, partition, coalesce(batches.topic_id, case ids when 1 then id end) as log,
      base_offset, last_offset, min(time) as time,
      arg_min(client_id, time) as client_id, arg_min(connection_id, time) as connection_id,
      arg_min(correlation_id, time) as correlation_id
    from batches join ids using (topic)
    where api = 'Produce' and error_code = 0 and base_offset >= 0 and log is not null
    group by topic, partition, log, base_offset, last_offset, crc, base_timestamp, bytes),
  pairs as (
    -- In order of offsets, a batch overlaps with the one before it that ends last.
    select *, max(last_offset) over before as end_before,
      arg_max(time, last_offset) over before as time_before,
      arg_max(base_offset, last_offset) over before as base_before
    from acknowledged
    window before as (partition by topic, partition, log order by base_offset, time
      rows between unbounded preceding and 1 preceding)),
  truncated as (
    select topic, partition, log, min(greatest(time, time_before)) as end_time,
      min(case when time > time_before then base_offset else base_before end) as first_offset
    from pairs where base_offset <= end_before group by all)
  select topic, partition, count(*) as batches, min(base_offset) as base_offset,
    sum(last_offset - greatest(base_offset, first_offset) + 1)::bigint as records,
    any_value(first_offset) as first_offset, max(last_offset) as last_offset,
    min(acknowledged.time) as first_time, max(acknowledged.time) as last_time,
    any_value(end_time) as end_time, list(distinct acknowledged.client_id) as clients,
    list(distinct acks) as acks, {first_packet("time")} as first_packet
  from acknowledged join truncated using (topic, partition, log)
    left join (
      select connection_id, correlation_id, request_time as time, acks, request_packet
      from exchanges) using (connection_id, correlation_id, time)
  where time < end_time and acknowledged.last_offset >= first_offset
  group by topic, partition, log order by records desc, topic, partition"""
"""SQL: by partition, the acknowledged batches whose offsets were assigned again."""

REPLICAS: Final = """
  select topic, partition, max(len(replicas)) as replicas from topics group by all"""
"""SQL: the largest number of replicas of each partition in Metadata."""

_FEW: Final = Advice(
    "the leader failed before its followers had the records: a producer with acks=1 does not wait "
    "for them, or the new leader was not in sync (an unclean leader election)",
    "client", "acks=all",
    "Set acks=all in the producers, and min.insync.replicas=2 and unclean.leader.election.enable="
    "false (the default) for the topic. Send the lost records again.",
    "KIP-101, KIP-966; Kafka documentation: Topic Configs, unclean.leader.election.enable",
)  # fmt: skip
_ALL: Final = _FEW._replace(
    cause="a replica that was not in sync became leader (an unclean leader election), or a leader "
    "lost its disk",
    side="broker", setting="min.insync.replicas=2",
    change="Set min.insync.replicas=2 and unclean.leader.election.enable=false (the default) for "
    "the topic. Send the lost records again.",
)  # fmt: skip

_ALONE: Final = _ALL._replace(
    cause="the partition has one replica, and the broker lost its disk or log directory",
    setting="default.replication.factor",
    change="Raise the replication factor of the topic to 3 (kafka-reassign-partitions.sh), and "
    "then set min.insync.replicas=2. Send the lost records again.",
    reference="Kafka documentation: Replication",
)  # fmt: skip


@rule(
    question="Were acknowledged records lost, or skipped by a group?",
    place=27,
    rests_on="batches topics exchanges partitions",
    thresholds=(
        Threshold("records", 1, "record", "One is enough: its producer regards it as written."),
    ),
)
def lost_records(case: Case, limits: Limits) -> Iterator[Finding]:
    """Partitions whose log was truncated, in one finding: a broker leads many of them; records
    that a group skipped."""
    rows = [row for row in case.rows(LOST) if row["records"] >= limits["records"]]
    if rows:
        yield _finding(case, rows)
    skipped = [row for row in skipped_partitions(case) if row["records"] >= limits["records"]]
    yield from map(skipped_finding, rows_by(skipped, "group_id").values())


def _finding(case: Case, rows: list[Row]) -> Finding:
    row, lost = rows[0], sum(row["records"] for row in rows)
    of = topics(list(dict.fromkeys(row["topic"] for row in rows)))
    names = known(name for each in rows for name in each["clients"])
    acks = sorted({each for row in rows for each in row["acks"] if each is not None})
    known_replicas = [case.matching(REPLICAS, each, "topic partition") for each in rows]
    is_alone = all(each and each[0]["replicas"] == 1 for each in known_replicas)
    where = f"partition {row['partition']} of topic `{row['topic']}`"
    first, last = row["first_offset"], row["last_offset"]
    offsets = f"offset {first:,}" if first == last else f"offsets {first:,} to {last:,}"
    return Finding(
        severity="critical",
        subject=of,
        clients=names,
        sentence=f"{counted(lost, 'acknowledged record')} of {of} {verb(lost, 'were')} lost",
        evidence=(f"In {len(rows):,} partitions, most in {where}:" if len(rows) > 1
                  else f"In {where}:")
        + f" a leader acknowledged {offsets} until "
        f"{time_text(row['last_time'], 3)}, but at {moment_text(row['end_time'])}, "
        f"offset {first:,} was given to another record."
        + (f" Producers: {listed(f'`{name}`' for name in names)}" if names else "")
        + (f", acks: {', '.join('all' if each < 0 else str(each) for each in acks)}." if acks
           else "." * bool(names)),
        numbers=cells(row, "topic partition base_offset"),
        command=_batches(row),
        requests=sum(row["batches"] for row in rows),
        **span_of(rows) | {"last_time": max(row["end_time"] for row in rows)},
        **(_ALONE if is_alone else _ALL if acks == [-1] else _FEW)._asdict(),
    )  # fmt: skip


def _batches(row: Row) -> str:
    """The command that lists the batches with the offsets that were assigned twice."""
    return sql(f"""
      select time, client_id, topic, partition, base_offset, last_offset from batches
      where api = 'Produce' and error_code = 0 and topic = {literal(row["topic"])}
        and partition = {row["partition"]}
        and last_offset >= {row["first_offset"]} and base_offset <= {row["last_offset"]}
      order by time""")

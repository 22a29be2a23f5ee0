"""Skew of partitions: one partition of a topic gets most of the records.

Its leader, its consumer and its disk carry the load of the topic, while the others are idle. The
partition is chosen by the hash of the key; without a key, producers spread records evenly
(KIP-794).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import CLIENT, WARNING, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import known, listed, percent, share, sql
from analysis.sql.expressions import literal

QUERY: Final = """
  with written as (
    select topic, partition, sum(record_count)::bigint as records, count(*) as requests
    from partitions
    where api = 'Produce' and error_code = 0 and topic is not null group by all)
  select *, (sum(records) over (partition by topic))::bigint as topic_records from written
  order by records desc, topic, partition"""

SHOWN: Final = """
  select topic, partition, sum(record_count) as records from partitions
  where api = 'Produce' and error_code = 0 and topic = {topic} group by all order by records desc"""

PARTITIONS: Final = """
  select topic, count(distinct partition) as partitions
  from (select topic, partition from topics union select topic, partition from partitions)
  group by all"""

PRODUCERS: Final = """
  select topic, partition, string_agg(distinct client_id, ', ' order by client_id) as clients
  from partitions where api = 'Produce' group by all"""


@rule(
    question="Does one partition get most records of its topic?",
    place=17,
    rests_on="partitions topics",
    thresholds=(
        Threshold(
            "times_mean", 3, "times", "Records of the largest partition, in means of all "
            "partitions of the topic. Hashes of a hundred keys rarely exceed 1.5."
        ),
        Threshold("records", 500, "records", "Smallest sample of a topic."),
        Threshold(
            "partitions", 3, "partitions", "Fewest partitions of a topic: of two partitions, none "
            "has three times the mean."
        ),
    ),
)  # fmt: skip
def partition_skew(case: Case, limits: Limits) -> Iterator[Finding]:
    """Topics with one large partition."""
    counts = {row["topic"]: row["partitions"] for row in case.rows(PARTITIONS)}
    producers = {(row["topic"], row["partition"]): row["clients"] for row in case.rows(PRODUCERS)}
    seen: set[str] = set()
    for row in case.rows(QUERY):
        topic, count = row["topic"], counts[row["topic"]]
        if topic in seen:
            continue
        seen.add(topic)
        times = (row["records"] or 0) * count / max(row["topic_records"] or 0, 1)
        if (
            count < limits["partitions"]
            or (row["topic_records"] or 0) < limits["records"]
            or times < limits["times_mean"]
        ):
            continue
        part = share(row["records"], row["topic_records"])
        clients = (producers.get((topic, row["partition"])) or "").split(", ")
        yield Finding(
            severity=WARNING,
            subject=f"topic `{topic}`",
            clients=known(clients),
            sentence=f"Partition {row['partition']} of topic `{topic}` gets {percent(part)} of the "
            "produced records",
            evidence=f"{row['records']:,} of {row['topic_records']:,} records in one of {count:,} "
            f"partitions: {times:.1f} times the mean. Producers: {listed(clients)}.",
            numbers={name: row[name] for name in ("topic", "partition", "records")},
            cause="most records have the same key, or the producer names the partition",
            side=CLIENT,
            setting="partitioner.class",
            change="Use a key with more values, or no key where order does not matter. Do not set "
            "partitioner.ignore.keys or a partitioner of your own without need.",
            reference="KIP-794",
            command=sql(SHOWN.format(topic=literal(topic))),
            requests=row["requests"],
        )

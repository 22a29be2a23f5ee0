"""Skew of partitions: one partition of a topic carries most of its load.

The leader, the consumer and the disk of this partition carry the load of the topic, while others
are idle. Producers choose the partition by the hash of the key, and spread records without a key
evenly (KIP-794).

Kafka Connect stores the offsets of each source in an internal topic under one key, so its skew is
by design.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import cells, known, listed, percent, span_of
from analysis.sql.query import Row

PRODUCERS: Final = """
  select topic, partition, count(*) as requests,
    min(time) as first_time, max(time) as last_time,
    list(distinct client_id order by client_id) as clients
  from partitions where api = 'Produce' group by all"""

OFFSETS_OF_CONNECT: Final = """
  select distinct topic from partitions
  where ends_with(client_id, '-offsets')
    and replace(client_id, '-offsets', '-configs') in (select client_id from exchanges)"""
"""SQL: internal topics with the offsets of Kafka Connect, whose workers read them with clients of
their own (`KafkaOffsetBackingStore` and `KafkaConfigBackingStore`)."""


@rule(
    question="Does one partition carry most of the load of its topic?",
    place=17,
    rests_on="skew partitions",
    thresholds=(
        Threshold("ratio", 3, "times", "Bytes of the largest partition, as a multiple of the mean "
                  "of the partitions of the topic. With a hundred keys, hashing rarely exceeds "
                  "1.5."),
        Threshold("records", 500, "records", "Smallest sample: produced records of a topic."),
        Threshold("partition_records", 100, "records", "Smallest sample: produced records of the "
                  "partition. With three records in each partition on average, chance puts nine in "
                  "one of a few hundred."),
        Threshold("requests", 20, "requests", "Smallest sample: Produce requests for the "
                  "partition. Producers fill the batch of one partition after the other with "
                  "records without a key (KIP-480), so a few batches are chance."),
        Threshold("partitions", 3, "partitions", "Fewest partitions of a topic: one of two "
                  "partitions cannot have three times the mean."),
    ),
)  # fmt: skip
def partition_skew(case: Case, limits: Limits) -> Iterator[Finding]:
    """Topics with one large partition, by the answer `skew`."""
    rows = case.answer("skew")
    records: Counter[str] = Counter()
    for row in rows:
        records[row["topic"]] += row["produced_records"] or 0
    skewed = [
        row for row in rows
        if records[row["topic"]] >= limits["records"]
        and (row["produced_records"] or 0) >= limits["partition_records"]
        and row["partition_count"] >= limits["partitions"]
        and row["ratio"] >= limits["ratio"]
    ]  # fmt: skip
    if not skewed:
        return
    internal = {row["topic"] for row in case.rows(OFFSETS_OF_CONNECT)}
    producers = {(row["topic"], row["partition"]): row for row in case.rows(PRODUCERS)}
    for row in skewed:
        producer = producers.get((row["topic"], row["partition"]))
        if not producer or row["topic"] in internal:
            continue
        if producer["requests"] >= limits["requests"]:
            yield _finding(row, records[row["topic"]], producer)


def _finding(row: Row, records: int, producer: Row) -> Finding:
    topic, clients = row["topic"], known(producer["clients"])
    return Finding(
        severity="warning",
        subject=f"topic `{topic}`",
        clients=clients,
        sentence=f"Partition {row['partition']} carries {percent(row['share_percent'])} of topic "
        f"`{topic}`",
        evidence=f"The partition has {row['produced_records'] or 0:,} of {records:,} produced "
        f"records, and {row['ratio']:,.1f} times the mean bytes of the partitions. "
        f"Producers: {listed(clients) or 'without id'}.",
        numbers=cells(row, "topic partition ratio share_percent produced_records partition_count"),
        cause="most records have the same key, or the producer chooses the partition itself",
        side="client",
        setting="partitioner.class",
        change="Use a key with more values, or no key where order does not matter. skew --show "
        "keys lists the most frequent keys.",
        reference="KIP-794",
        command="skew",
        requests=producer["requests"],
        **span_of([producer]),
    )

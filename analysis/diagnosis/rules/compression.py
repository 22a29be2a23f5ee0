"""Compression: a producer does not compress, its codec has no effect, or brokers use another one.

A capture shows whether batches are compressed, not how well their records would compress. This is
therefore only a note: text and JSON shrink to a quarter, but compressed or encrypted values do not
shrink. librdkafka, franz-go and kafka-python send such batches uncompressed, also with a codec.

A batch that was produced with one codec and fetched with another was compressed again by the
broker, because compression.type of its topic is not that of the producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import (
    Advice,
    capital,
    cells,
    client,
    clients,
    known,
    of_ends,
    rows_by,
    span_of,
    sql,
    topics,
)
from analysis.display.terminal import counted, size_text
from analysis.sql.query import Row

_NONE: Final = Advice(
    "compression.type is none, or the batches do not shrink: librdkafka, franz-go and kafka-python "
    "then send them uncompressed",
    "client", "compression.type=lz4",
    "Set compression.type to lz4 or zstd if the records are text, JSON or Avro.",
    "Kafka documentation: Producer Configs; KIP-110",
)  # fmt: skip
_USELESS: Final = _NONE._replace(
    cause="the values are compressed or encrypted already, or batches are too small",
    setting="compression.type=none",
    change="Switch compression off for this topic, or send larger batches.",
)

_AGAIN: Final = Advice(
    "compression.type of the topic or of the brokers is a codec that the producers do not use",
    "broker", "compression.type=producer",
    "Set compression.type of the topic to producer, the default, or use its codec in the "
    "producers: brokers then store batches as they come.",
    "Kafka documentation: Topic Configs, compression.type",
)  # fmt: skip

AGAIN: Final = """
  with several as (
    select topic from batches where api in ('Produce', 'Fetch')
    group by topic having min(codec) != max(codec) and min(api) != max(api)),
  produced as (
    from batches semi join several using (topic) where api = 'Produce' and error_code = 0),
  fetched as (
    select distinct topic, topic_id, partition, base_offset, last_offset, codec
    from batches semi join several using (topic) where api = 'Fetch' and magic = 2)
  select topic, produced.codec as produced, fetched.codec as fetched, count(*) as batches,
    sum(bytes)::bigint as bytes, list_sort(list(distinct client_id)) as client_ids,
    min(time) as first_time, max(time) as last_time
  from produced join fetched using (topic, partition, base_offset, last_offset)
  where produced.codec != fetched.codec and coalesce(produced.topic_id = fetched.topic_id, true)
  group by topic, produced.codec, fetched.codec order by bytes desc, topic, produced, fetched"""
"""SQL: batches that were fetched with another codec than they were produced with."""


@rule(
    question="Do producers compress their batches, and does it help?",
    place=21,
    rests_on="batching batches",
    thresholds=(
        Threshold("bytes", 400_000, "bytes", "Smallest total size of the batches of a client in a "
                  "topic: less is not worth a change."),
        Threshold("bytes_p50", 1000, "bytes", "Smallest median size of a batch: small batches do "
                  "not compress well; see small_batches."),
        Threshold("ratio", 1.1, "times", "A codec below this compression ratio costs CPU and saves "
                  "nothing."),
    ),
)  # fmt: skip
def compression(case: Case, limits: Limits) -> Iterator[Finding]:
    """Producers without compression, or without its effect, by the answer `batching`; topics whose
    batches are compressed again."""
    produced = case.answer("batching --by client_id,topic")
    large = [
        row for row in produced
        if row["bytes"] >= limits["bytes"] and row["bytes_p50"] >= limits["bytes_p50"]
    ]  # fmt: skip
    for codecs, rows in rows_by(large, "codecs").items():
        useless = [row for row in rows if (row["ratio"] or limits["ratio"]) < limits["ratio"]]
        if codecs == "none":
            yield _finding(rows, _NONE)
        elif "none" not in codecs and useless:
            yield _finding(useless, _USELESS)
    is_large = sum(row["bytes"] for row in produced) >= limits["bytes"]
    for row in case.rows(AGAIN) if is_large else ():
        if row["bytes"] >= limits["bytes"]:
            yield _again(row)


def _again(row: Row) -> Finding:
    return Finding(
        severity="note",
        subject=topics([row["topic"]]),
        clients=known(row["client_ids"]),
        sentence=f"Brokers compress the batches of topic `{row['topic']}` again: {row['produced']} "
        f"in Produce requests is {row['fetched']} in Fetch responses",
        evidence=f"{counted(row['batches'], 'batch')} with {size_text(row['bytes'])} as produced. "
        f"Producers: {clients(row['client_ids'])}. The broker decompresses and compresses each "
        "batch before it responds.",
        numbers=cells(row, "topic produced fetched batches bytes"),
        command=sql(AGAIN),
        requests=row["batches"],
        **span_of([row | {"first_packet": None}]),
        **_AGAIN._asdict(),
    )


def _finding(rows: list[Row], advice: Advice) -> Finding:
    """A finding for producers with the same codecs, that with the most bytes first."""
    rows = sorted(rows, key=lambda row: -row["bytes"])
    row, by_client = rows[0], rows_by(rows, "client_id")
    is_one = len(by_client) == 1
    if advice is _NONE:
        does = f"{'does' if is_one else 'do'} not compress {'its' if is_one else 'their'} batches"
    else:
        does = f"{'compresses' if is_one else 'compress'} with {row['codecs']} without effect"
    used = topics(list(dict.fromkeys(row["topic"] for row in rows)))
    most = ""
    if len(rows) > 1:
        most = f"Most ({client(row['client_id'])}, topic `{row['topic']}`): "
    ratio = f"; compression ratio {row['ratio']:.2f}" if row["ratio"] else ""
    return Finding(
        severity="note",
        **of_ends(rows, "client_id topic batches requests bytes bytes_p50 codecs ratio"),
        sentence=f"{capital(clients([*by_client]))} {does} to {used}",
        evidence=f"{most}{counted(row['batches'], 'batch')} with {size_text(row['bytes'])}, "
        f"the median batch has {row['bytes_p50']:,.0f} bytes{ratio}.",
        command="batching --by client_id,topic",
        # A request may have batches for several topics.
        requests=sum(max(row["requests"] for row in own) for own in by_client.values()),
        **advice._asdict(),
    )

"""Compression: a producer does not compress, or its codec has no effect.

A capture shows whether batches are compressed, not how well their records would compress. This is
therefore only a note: text and JSON shrink to a quarter, but compressed or encrypted values do not
shrink. librdkafka sends such batches uncompressed, also with a codec.
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import capital, client, of_client
from analysis.display.terminal import counted, size_text
from analysis.sql.query import Row


@rule(
    question="Do producers compress their batches, and does it help?",
    place=21,
    rests_on="batching",
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
    """Producers without compression, or without its effect, by the answer `batching`."""
    for row in case.answer("batching --by client_id,topic"):
        if row["bytes"] < limits["bytes"] or row["bytes_p50"] < limits["bytes_p50"]:
            continue
        if row["codecs"] == "none":
            yield _finding(
                row, "does not compress its batches",
                "compression.type is none, the default, or the client is librdkafka, and its "
                "batches do not shrink",
                "compression.type=lz4",
                "Set compression.type to lz4 or zstd if the records are text, JSON or Avro.",
            )  # fmt: skip
        elif "none" not in row["codecs"] and (row["ratio"] or limits["ratio"]) < limits["ratio"]:
            yield _finding(
                row, f"compresses with {row['codecs']} without effect",
                "the values are compressed or encrypted already, or batches are too small",
                "compression.type=none", "Switch compression off for this topic, or send larger "
                "batches.",
            )  # fmt: skip


def _finding(row: Row, does: str, cause: str, setting: str, change: str) -> Finding:
    name = row["client_id"]
    ratio = f"; compression ratio {row['ratio']:.2f}" if row["ratio"] else ""
    return Finding(
        severity="note",
        **of_client(row, "client_id topic batches requests bytes bytes_p50 codecs ratio"),
        sentence=f"{capital(client(name))} {does} to topic `{row['topic']}`",
        evidence=f"{counted(row['batches'], 'batch')} with {size_text(row['bytes'])}, "
        f"the median batch has {row['bytes_p50']:,.0f} bytes{ratio}.",
        cause=cause,
        side="client",
        setting=setting,
        change=change,
        reference="Kafka documentation: Producer Configs; KIP-110",
        command="batching --by client_id,topic",
        requests=row["requests"],
    )

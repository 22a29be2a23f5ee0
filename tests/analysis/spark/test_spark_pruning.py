"""Record payload that no table needs is pruned, and the dissecting task verifies it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import numpy as np
import pyarrow as pa
import zstandard
from pyspark.sql import DataFrame, SparkSession

from analysis.spark import dissection, plan, pruning, splits
from analysis.spark.dissection import CONNECTIONS, NAMES, PRUNE_MISMATCH, Task
from analysis.spark.options import Request
from analysis.spark.packets import PruneChecks
from analysis.spark.pruning import PayloadPruner
from analysis.spark.schemas import to_spark
from dissector.capture import open_capture
from dissector.packets.block import PacketBlock
from tests.analysis.spark.sharding import CAPTURES, plain, texts

TABLE = "exchanges"


@pytest.fixture
def bulk(tmp_path: Path) -> str:
    path = tmp_path / "bulk.pcap"
    path.write_bytes(plain(CAPTURES / "bulk-tansu.pcap.zst"))
    return str(path)


def read_bundles(path: str, pruner: PayloadPruner | None) -> list[pa.RecordBatch]:
    (split,), _ = splits.validate([splits.scan_split(each) for each in splits.guess([path])])
    return [*splits.bundles(split, 1, splits.BEFORE_ALL, splits.AFTER_ALL, pruner)]


def size_of(bundles: Iterable[pa.RecordBatch]) -> int:
    """Decompressed bytes of bundles."""
    contents = (value for rows in bundles for value in rows["content"].to_pylist())
    return sum(len(zstandard.decompress(content)) for content in contents)


def dissected(path: str, bundles: Sequence[pa.RecordBatch]) -> dict[str, list[bytes]]:
    """Encoded rows of pruned bundles, by kind."""
    task = Task(Request([path], [TABLE]), [path], frozenset(), [], is_pruned=True)
    encoded: dict[str, list[bytes]] = {}
    for rows in dissection.dissect(task, iter(bundles)):
        encoded.setdefault(rows["kind"][0].as_py(), []).append(rows["content"][0].as_py())
    return encoded


def test_record_payload_is_pruned(bulk: str) -> None:
    complete, pruned = read_bundles(bulk, None), read_bundles(bulk, PayloadPruner((9092,), [], 0))
    assert size_of(pruned) < 0.2 * size_of(complete)
    encoded = dissected(bulk, pruned)
    assert PRUNE_MISMATCH not in encoded
    index = dissection.merge_index(
        (kind, content) for kind in (CONNECTIONS, NAMES) for content in encoded[kind]
    )
    task = Task(Request([bulk], [TABLE]), [bulk], frozenset(), [])
    rows = [*dissection.finalize(task, TABLE, index, encoded[TABLE])]
    expected = open_capture(bulk).tables([TABLE])[TABLE]
    assert texts(rows) == texts([to_spark(TABLE, batch) for batch in expected.to_batches()])


class MistakenPruner(PayloadPruner):
    """Records a wrong check for one message."""

    def prune(self, block: PacketBlock) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], PruneChecks]:
        pruned, checks = super().prune(block)
        return pruned, replace(
            checks, content=checks.content ^ (np.arange(len(checks.content)) == 3)
        )


def test_a_failed_check_is_reported(bulk: str) -> None:
    assert PRUNE_MISMATCH in dissected(bulk, read_bundles(bulk, MistakenPruner((9092,), [], 0)))


def test_after_a_mismatch_the_job_repeats_with_all_bytes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, bulk: str
) -> None:
    attempts = []

    @contextmanager
    def mismatch(
        spark: SparkSession, task: Task, bundles: DataFrame, shards: int
    ) -> Iterator[tuple[DataFrame, list[tuple[str, bytes]]]]:
        attempts.append((task.is_pruned, bundles.count()))
        yield bundles, [(PRUNE_MISMATCH, b"")] if task.is_pruned else []

    monkeypatch.setattr(plan, "dissect", mismatch)
    with plan.dissect_captures(spark, Request([bulk], [TABLE])) as result:
        size = size_of(result.encoded.select("content").toArrow().to_batches())
    assert [is_pruned for is_pruned, _ in attempts] == [True, False]
    assert size > Path(bulk).stat().st_size * 0.9


@pytest.mark.parametrize("name", sorted(pruning.NEED_RECORDS))
def test_tables_of_records_prevent_pruning(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, bulk: str, name: str
) -> None:
    attempts = []

    @contextmanager
    def record_attempt(*arguments: Any) -> Iterator[tuple[object, list[tuple[str, bytes]]]]:
        attempts.append(arguments[1].is_pruned)
        yield None, []

    monkeypatch.setattr(plan, "dissect", record_attempt)
    with plan.dissect_captures(spark, Request([bulk], [TABLE, name])):
        pass
    assert attempts == [False]

"""Records that no table asks for stay behind; whoever dissects checks that it was records."""

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

from analysis.spark import cutting, dissection, plan, splits
from analysis.spark.cutting import Cutter
from analysis.spark.dissection import CONNECTIONS, DOUBT, NAMES, Task
from analysis.spark.options import Request
from analysis.spark.packets import Claims
from analysis.spark.schemas import to_spark
from dissector.capture import open_capture
from dissector.packets.block import PacketBlock
from tests.analysis.spark.dealing import CAPTURES, plain, texts

TABLE = "exchanges"


@pytest.fixture
def bulk(tmp_path: Path) -> str:
    path = tmp_path / "bulk.pcap"
    path.write_bytes(plain(CAPTURES / "bulk-tansu.pcap.zst"))
    return str(path)


def bundled(path: str, cutter: Cutter | None) -> list[pa.RecordBatch]:
    (split,), _ = splits.settle([splits.look(each) for each in splits.guess([path])])
    return [*splits.bundles(split, 1, splits.BEFORE_ALL, splits.AFTER_ALL, cutter)]


def sent(bundles: Iterable[pa.RecordBatch]) -> int:
    """Bytes of bundles, before they are compressed."""
    contents = (content for each in bundles for content in each["content"].to_pylist())
    return sum(len(zstandard.decompress(each)) for each in contents)


def dissected(path: str, bundles: Sequence[pa.RecordBatch]) -> dict[str, list[bytes]]:
    """The parcels of bundles that are cut, by kind."""
    task = Task(Request([path], [TABLE]), [path], frozenset(), [], is_cut=True)
    found: dict[str, list[bytes]] = {}
    for each in dissection.dissect(task, iter(bundles)):
        found.setdefault(each["kind"][0].as_py(), []).append(each["content"][0].as_py())
    return found


def test_records_stay_behind(bulk: str) -> None:
    whole, cut = bundled(bulk, None), bundled(bulk, Cutter((9092,), [], 0))
    assert sent(cut) < 0.2 * sent(whole)
    found = dissected(bulk, cut)
    assert DOUBT not in found
    known = dissection.knowledge(
        (kind, content) for kind in (CONNECTIONS, NAMES) for content in found[kind]
    )
    task = Task(Request([bulk], [TABLE]), [bulk], frozenset(), [])
    rows = [*dissection.settle(task, TABLE, known, found[TABLE])]
    one = open_capture(bulk).tables([TABLE])[TABLE]
    assert texts(rows) == texts([to_spark(TABLE, each) for each in one.to_batches()])


class Mistaken(Cutter):
    """Takes one message for another that is as good."""

    def cut(self, block: PacketBlock) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], Claims]:
        cut, claims = super().cut(block)
        return cut, replace(claims, content=claims.content ^ (np.arange(len(claims.content)) == 3))


def test_a_claim_that_is_not_borne_out_is_told(bulk: str) -> None:
    assert DOUBT in dissected(bulk, bundled(bulk, Mistaken((9092,), [], 0)))


def test_in_doubt_all_is_done_again_with_all_bytes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, bulk: str
) -> None:
    tried = []

    @contextmanager
    def doubtful(
        spark: SparkSession, task: Task, bundles: DataFrame, shares: int
    ) -> Iterator[tuple[DataFrame, list[tuple[str, bytes]]]]:
        tried.append((task.is_cut, bundles.count()))
        yield bundles, [(DOUBT, b"")] if task.is_cut else []

    monkeypatch.setattr(plan, "dissected", doubtful)
    with plan.whole(spark, Request([bulk], [TABLE])) as found:
        size = sent(found.parcels.select("content").toArrow().to_batches())
    assert [is_cut for is_cut, _ in tried] == [True, False]
    assert size > Path(bulk).stat().st_size * 0.9


@pytest.mark.parametrize("name", sorted(cutting.NEED_RECORDS))
def test_where_a_table_tells_of_records_they_travel(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, bulk: str, name: str
) -> None:
    tried = []

    @contextmanager
    def seen(*every: Any) -> Iterator[tuple[object, list[tuple[str, bytes]]]]:
        tried.append(every[1].is_cut)
        yield None, []

    monkeypatch.setattr(plan, "dissected", seen)
    with plan.whole(spark, Request([bulk], [TABLE, name])):
        pass
    assert tried == [False]

"""Parquet files, to which rows are added batch by batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.export.parquet import TableFiles


def test_large_rows_do_not_wait_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.export.parquet.GROUP_BYTES", 1)
    schema = pa.schema([("value", pa.binary())])
    file = tmp_path / "records.parquet"
    with TableFiles({"records": file}, {"records": schema}) as files:
        for _ in range(3):
            files.add("records", pa.record_batch([[b"x" * 100]], schema))
    assert pq.read_metadata(file).num_row_groups == 3

"""A client of a Spark Connect server on this machine, which it starts. Classic sessions cannot run
in the same process.

python -m tests.analysis.spark.connect_client FOLDER CAPTURE...

A stream follows FOLDER/in. The rows of `exchanges` are written to FOLDER/batch.parquet and
FOLDER/stream.parquet, and the number of rows of an answer is printed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import analysis
import analysis.spark
from analysis.spark.session import _JAVA_OPTIONS

SETTINGS = {"spark.driver.defaultJavaOptions": _JAVA_OPTIONS, "spark.ui.enabled": "false"}
"""For the server: for so little work, a second compilation takes longer than it saves."""


def main() -> None:
    """Run the client."""
    folder, *paths = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").config(map=SETTINGS).getOrCreate()
    try:
        analysis.spark.register(spark)
        tables = analysis.spark.load(spark, paths, ("exchanges", "batches", "connections"))
        pq.write_table(tables["exchanges"].toArrow(), f"{folder}/batch.parquet")
        print(analysis.latency(tables, by=("api",)).count(), flush=True)
        follow(spark, Path(folder))
    finally:
        spark.stop()


def follow(spark: SparkSession, work: Path) -> None:
    """A stream that ends with the available files."""
    rows = (
        spark.readStream.format("kafka_capture")
        .options(state=str(work / "state"), watermark=60)
        .load(str(work / "in"))
    )
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(work / "out"))
    )
    query.awaitTermination()
    written = spark.read.parquet(str(work / "out")).toArrow()
    pq.write_table(written, work / "stream.parquet")


if __name__ == "__main__":
    main()

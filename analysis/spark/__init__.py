"""Bulk captures on Spark: the rows of one machine, from any number of them.

register   makes ``spark.read.format("kafka_capture")`` known to a session
options    what is asked for, and every option
session    finds Java, and makes a session
source     the data source, and the office that runs plans for it
plan       from files to tables, as Spark's jobs
splits     which bytes a task reads, and the proof that packets begin there
packets    blocks of packets to bundles, and back
dissection bundles to rows of tables, and what is settled when all tasks have spoken
schemas    the tables as Spark has them
stream     the same of a folder that a capture rotates into, batch by batch
follow     how far the files of such a folder go
job        tables as Parquet, by date and API
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the format known to a session; see `analysis.spark.source.register`."""
    from analysis.spark import source

    source.register(spark)

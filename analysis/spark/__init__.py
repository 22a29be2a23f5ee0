"""Bulk captures on Spark: the rows of one machine, from any number of them.

register   makes ``spark.read.format("kafka_capture")`` known to a session
options    what is asked for, and every option
session    finds Java, and makes a session
source     the data source, and the office that runs plans for it
plan       from files to tables, as Spark's jobs
writing    rows to Parquet, by the tasks that make them
output     the output folder of a job, in which nothing appears before all is complete
requirements  what a job needs of its session and of the executors
causes     the cause of an error of Spark, in one line
splits     which bytes a task reads, and the proof that packets begin there
cutting    what need not travel
packets    blocks of packets to bundles, and back
dissection bundles to rows of tables, and what is settled when all tasks have spoken
schemas    the tables as Spark has them
stream     the same of a folder that a capture rotates into, batch by batch
follow     how far the files of such a folder go
job        tables as Parquet, by date and API
measures   answers over tables: latency, throttle, errors, topology, groups
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEASURES: Final = ("latency", "throttle", "errors", "topology", "groups")

__all__ = ["load", "register"]


def register(spark: SparkSession) -> None:
    """Make the format known to a session; see `analysis.spark.source.register`."""
    from analysis.spark import source

    source.register(spark)


def __getattr__(name: str) -> Callable[..., Any]:
    """A measure, or `load`, which has the tables for them: see `analysis.spark.measures`."""
    if name not in (*MEASURES, "load"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from analysis.spark import measures

    found: Callable[..., Any] = getattr(measures, name)
    return found

"""Large captures on Spark: the rows of one process, on any number of machines.

register        makes ``spark.read.format("kafka_capture")`` known to a session
options         the request: tables, captures and all options
session         finds Java and creates a session
source          the data source
plan_server     the server that runs plans for the data source
result_dirs     the folders with its results
job             the Spark jobs from files to tables as Parquet, by date
plan            the parts of a job
tasks           tasks of Spark, in classic sessions and in those of Spark Connect
dissection      the work of tasks: runs to rows, and their completion
schemas         the tables as Spark schemas
writing         the Parquet files of a run
output          the output folder of a job, in which tables appear run by run
manifests       the folder with the manifests of complete runs, and with unfinished work
requirements    checks of the session and the executors
causes          one-line causes of Spark errors
stream          a stream over a folder into which a capture rotates
file_offsets    sizes of the files of such a folder
growing_files   the packets that were added to these files
answers         the answers over Spark DataFrames
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from analysis.extras import needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["load", "register"]


def register(spark: SparkSession) -> None:
    """Register the format in a session; see `analysis.spark.source.register`."""
    with needed("spark"):
        from analysis.spark import source

    source.register(spark)


def __getattr__(name: str) -> Callable[..., Any]:
    """`load`, from `analysis.spark.answers`."""
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed("spark"):
        from analysis.spark.answers import load

    return load

"""Tasks of Spark, in both kinds of session.

The driver of Spark Connect is in another process, and has the interface of DataFrames alone. A
classic session also has RDDs, which do not need the engine of SQL: its start takes more processor
time than a small capture.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id, udf

Result = TypeVar("Result")


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect."""
    return any(base.__module__.startswith("pyspark.sql.connect") for base in type(spark).__mro__)


def parallelism(spark: SparkSession) -> int:
    """The number of cores: of partitions that Spark makes by default."""
    if is_connect(spark):
        cores: int = spark.range(1 << 16).select(spark_partition_id()).distinct().count()
    else:
        cores = spark.sparkContext.defaultParallelism
    return cores


def results(
    spark: SparkSession, function: Callable[[int], Result], count: int, description: str
) -> list[Result]:
    """What `function` returns for each number below `count`, in a task each.

    It is sent as code. `description`: what Spark's page shows; Spark Connect has none.
    """
    if is_connect(spark):
        # Without Arrow, which an executor may lack.
        packed = udf(lambda number: pickle.dumps(function(number)), "binary", useArrow=False)
        rows = spark.range(0, count, 1, count).select(packed("id").alias("result"))
        return [pickle.loads(row.result) for row in rows.collect()]
    context = spark.sparkContext
    context.setJobDescription(description)
    try:
        done: list[Result] = context.parallelize(range(count), count).map(function).collect()
    finally:
        context.setJobDescription(None)
    return done

"""The job: a table of captures as Parquet, in folders by date and API."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from analysis.spark import plan
from analysis.spark.plan import Request
from dissector.tables import TABLES

_TIMES: Final = ("request_time", "response_time", "first_time", "time")
_NS_PER_DAY: Final = 86_400 * 10**9


def run(spark: SparkSession, request: Request, output: str) -> None:
    """Write `request.table` to the folder `output`, which must not exist.

    A row's date, in UTC, is that of its first time; its API is where the table has one.
    """
    names = TABLES[request.table].schema.names
    times = ", ".join(f"{name}_ns" for name in _TIMES if name in names)
    # Not by way of Spark's timestamps, whose date is that of the session's time zone.
    date = f.expr(f"date_from_unix_date(int(coalesce({times}) div {_NS_PER_DAY}))")
    folders = ["date", "api"] if "api" in names else ["date"]
    with plan.table(spark, request) as found:
        found.withColumn("date", date).write.partitionBy(*folders).parquet(output)

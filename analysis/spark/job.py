"""The job: tables of captures as Parquet, in folders by date and API."""

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
    """Write the tables to the folder `output`, each in a folder of its name that must not exist.

    A row's date, in UTC, is that of its first time; its API is where the table has one.
    """
    with plan.tables(spark, request) as tables:
        for name, rows in tables.items():
            known = TABLES[name].schema.names
            times = ", ".join(f"{time}_ns" for time in _TIMES if time in known)
            # Not by way of Spark's timestamps, whose date is that of the session's time zone.
            date = f.expr(f"date_from_unix_date(int(coalesce({times}) div {_NS_PER_DAY}))")
            folders = ["date", "api"] if "api" in known else ["date"]
            dated = rows.withColumn("date", date)
            dated.write.partitionBy(*folders).parquet(f"{output.rstrip('/')}/{name}")

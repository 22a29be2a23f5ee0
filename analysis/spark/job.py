"""The job: tables of captures as Parquet, in folders by date and API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f

from analysis.spark import plan
from analysis.spark.options import Request
from dissector.errors import DissectorError
from dissector.tables import TABLES

TIMES: Final = ("request_time", "response_time", "first_time", "time")
_NS_PER_DAY: Final = 86_400 * 10**9


def run(spark: SparkSession, request: Request, output: str) -> Iterator[tuple[str, int, str]]:
    """Write the tables to the folder `output`, each in a folder of its name that must not exist.

    Gives each table, when it is written: its name, its rows, its folder. A row's date, in UTC, is
    that of its first time; its API is where the table has one. Raises DissectorError.
    """
    folder = output.rstrip("/") if "://" in output else str(Path(output).absolute())
    with plan.tables(spark, request) as tables:
        for name, rows in tables.items():
            known = TABLES[name].schema.names
            times = ", ".join(f"{time}_ns" for time in TIMES if time in known)
            # Not by way of Spark's timestamps, whose date is that of the session's time zone.
            date = f.expr(f"date_from_unix_date(int(coalesce({times}) div {_NS_PER_DAY}))")
            folders = ["date", "api"] if "api" in known else ["date"]
            seen = Observation()
            dated = rows.withColumn("date", date).observe(seen, f.count(f.lit(1)).alias("rows"))
            try:
                dated.write.partitionBy(*folders).parquet(f"{folder}/{name}")
            except (PySparkException, Py4JError) as error:
                raise DissectorError(str(error).splitlines()[0]) from error
            yield name, seen.get["rows"], f"{folder}/{name}"

"""The job: tables of captures as Parquet, in folders by date and API."""

from __future__ import annotations

from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analysis.spark import plan, requirements
from analysis.spark.causes import cause
from analysis.spark.options import Request
from analysis.spark.output import Output
from dissector.errors import DissectorError


def check(spark: SparkSession, output: Output) -> None:
    """Whether executors can do the job; see `requirements`. Raises DissectorError."""
    try:
        requirements.check(spark, next(iter(output.folders.values())))
    except (PySparkException, Py4JError) as error:
        raise DissectorError(cause(error)) from error


def run(spark: SparkSession, request: Request, output: Output) -> Iterator[tuple[str, int, str]]:
    """Write the tables to an output that is open. Gives of each table its name, rows and folder.

    A row's date, in UTC, is that of its first time; its API is where the table has one. Raises
    DissectorError.
    """
    try:
        with plan.whole(spark, request) as found:
            rows = {name: found.write(name, folder) for name, folder in output.folders.items()}
    except (PySparkException, Py4JError) as error:
        raise DissectorError(cause(error)) from error
    output.commit()
    for name, count in rows.items():
        yield name, count, output.place(name)

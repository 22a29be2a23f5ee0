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
    """Check the executors; see `requirements`. Raises DissectorError."""
    try:
        requirements.check(spark, next(iter(output.folders.values())))
    except (PySparkException, Py4JError) as error:
        raise DissectorError(cause(error)) from error


def run(spark: SparkSession, request: Request, output: Output) -> Iterator[tuple[str, int, str]]:
    """Write the tables to an open output. Yields the name, number of rows and folder of each table.

    Rows are divided by the date (UTC) of their first time, and by API if the table has one. Raises
    DissectorError.
    """
    try:
        with plan.dissect_captures(spark, request) as dissection:
            rows = {name: dissection.write(name, folder) for name, folder in output.folders.items()}
    except (PySparkException, Py4JError) as error:
        raise DissectorError(cause(error)) from error
    output.commit()
    for name, count in rows.items():
        yield name, count, output.place(name)

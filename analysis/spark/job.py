"""The job: tables of captures as Parquet, in folders by date and API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analysis.spark import plan
from analysis.spark.options import Request
from analysis.spark.writing import Folder
from dissector.errors import DissectorError


def run(spark: SparkSession, request: Request, output: str) -> Iterator[tuple[str, int, str]]:
    """Write the tables to the folder `output`, each in a folder of its name that must not exist.

    Gives each table, when it is written: its name, its rows, its folder. A row's date, in UTC, is
    that of its first time; its API is where the table has one. Raises DissectorError.
    """
    try:
        with plan.whole(spark, request) as found:
            for name in request.tables:
                folder = str(Path(output).absolute() / name)
                yield name, found.write(name, Folder(folder, is_divided=True)), folder
    except (PySparkException, Py4JError) as error:
        raise DissectorError(str(error).splitlines()[0]) from error

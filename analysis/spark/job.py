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
from dissector.packets.remote import is_url


def run(spark: SparkSession, request: Request, output: str) -> Iterator[tuple[str, int, str]]:
    """Write the tables to the folder `output`, each in a folder of its name that must not exist.

    The folder may be a URL; see `dissector.packets.remote`. Gives each table, when it is written:
    its name, its rows, its folder. A row's date, in UTC, is that of its first time; its API is
    where the table has one. Raises DissectorError.
    """
    root = output.rstrip("/") if is_url(output) else str(Path(output).absolute())
    folders = {name: Folder(f"{root}/{name}", is_divided=True) for name in request.tables}
    for folder in folders.values():
        folder.must_be_new()
    try:
        with plan.whole(spark, request) as found:
            for name, folder in folders.items():
                yield name, found.write(name, folder), folder.path
    except (PySparkException, Py4JError) as error:
        raise DissectorError(str(error).splitlines()[0]) from error

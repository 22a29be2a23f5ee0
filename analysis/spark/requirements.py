"""What a job needs of its session and of the executors, checked before it runs for hours.

The job runs Python functions of this package in the executors, with Arrow, and tasks write to the
output folder themselves. So every executor needs this package and what it imports, the driver's
PySpark, and the driver's folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyspark
from pyspark.sql import SparkSession

from analysis.spark.causes import DOCS
from analysis.spark.writing import Folder
from dissector.errors import DissectorError

MODULES: Final = (
    *("numpy", "pyarrow", "pandas", "zstandard", "fsspec", "dissector"),
    "analysis.spark.plan",
)
"""The last one imports all that tasks need."""


def is_connect(spark: Any) -> bool:
    """Whether a session is one of Spark Connect."""
    return any(each.__module__.startswith("pyspark.sql.connect") for each in type(spark).__mro__)


def refuse_connect(spark: Any) -> None:
    """Raises DissectorError for a session of Spark Connect."""
    if is_connect(spark):
        raise DissectorError(
            "Spark Connect is not supported: use a classic session, which has its driver in this "
            "process, from SparkSession.builder.master(...)"
        )


def check(spark: SparkSession, folder: Folder) -> None:
    """Ask executors for the package, PySpark and the folder, which has begun.

    Raises DissectorError, and errors of Spark.
    """
    refuse_connect(spark)
    context = spark.sparkContext
    tasks = context.defaultParallelism
    reports = context.parallelize(range(tasks), tasks).mapPartitions(
        _question(MODULES, folder.path)
    )
    for host, python, version, lacking, mismatch in reports.collect():
        if lacking:
            raise DissectorError(
                f"the Python of executor {host}, {python}, lacks {', '.join(lacking)}: bring "
                f"kafka-dissector and what it needs to the executors; {DOCS}"
            )
        if version != pyspark.__version__:
            raise DissectorError(
                f"executor {host} has PySpark {version}, the driver {pyspark.__version__}: both "
                f"need the same; {DOCS}"
            )
        if mismatch:
            raise DissectorError(mismatch)


def _question(modules: Sequence[str], path: str) -> Any:
    """The function of a task. It is sent as code, since an executor may lack this module."""

    def ask(_: Iterator[int]) -> Iterator[tuple[str, str, str, list[str], str]]:
        import importlib
        import socket
        import sys

        import pyspark

        lacking: list[str] = []
        for name in modules:
            try:
                importlib.import_module(name)
            except ImportError as error:
                missing = error.name or name
                lacking += [missing] if missing not in lacking else []
        mismatch = ""
        if not lacking:
            from analysis.spark.writing import Folder
            from dissector.errors import DissectorError

            try:
                Folder(path).check()
            except DissectorError as error:
                mismatch = str(error)
        yield socket.gethostname(), sys.executable, pyspark.__version__, lacking, mismatch

    return ask

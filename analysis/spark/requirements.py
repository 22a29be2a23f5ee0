"""The requirements of a job, which are checked at its start.

The job runs Python functions of this package in the executors, with Arrow, and its tasks write to
the output folder. So each executor needs this package and its dependencies, the driver's version of
PySpark, and the driver's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import pyspark
from pyspark.sql import SparkSession

from analysis.spark.causes import DOCS
from analysis.spark.manifests import JobFolder
from analysis.spark.tasks import parallelism, results
from dissector.errors import DissectorError

Report: TypeAlias = tuple[str, str, str, list[str], str]
"""Host, Python, version of PySpark, missing modules, and the error of the folder."""
MODULES: Final = (
    *("numpy", "pyarrow", "pandas", "zstandard", "fsspec", "dissector"),
    "analysis.spark.job",
)
"""The last module imports everything that tasks need."""


def check(spark: SparkSession, folder: JobFolder) -> None:
    """Check the package, PySpark and the folder in the executors. The folder must exist.

    Raises DissectorError and Spark errors.
    """
    function = _check_function(MODULES, (folder.output, folder.digest, folder.owner))
    reports = results(spark, function, parallelism(spark), "kafka-dissector: check")
    for host, python, version, missing, mismatch in reports:
        if missing:
            raise DissectorError(
                f"the Python of executor {host}, {python}, lacks {', '.join(missing)}: install "
                f"kafka-dissector and its dependencies on the executors; {DOCS}"
            )
        if version != pyspark.__version__:
            raise DissectorError(
                f"executor {host} has PySpark {version}, the driver has {pyspark.__version__}: "
                f"install the same version; {DOCS}"
            )
        if mismatch:
            raise DissectorError(mismatch)


def _check_function(
    modules: Sequence[str], folder: tuple[str, str, bytes]
) -> Callable[[int], Report]:
    """The function of a task. It is sent as code, because an executor may lack this module."""

    def check_executor(_: int) -> Report:
        import importlib
        import socket
        import sys

        import pyspark

        missing: list[str] = []
        for name in modules:
            try:
                importlib.import_module(name)
            except ImportError as error:
                module = error.name or name
                missing += [module] if module not in missing else []
        mismatch = ""
        if not missing:
            from analysis.spark.manifests import JobFolder
            from dissector.errors import DissectorError

            try:
                JobFolder(*folder).check()
            except DissectorError as error:
                mismatch = str(error)
        return socket.gethostname(), sys.executable, pyspark.__version__, missing, mismatch

    return check_executor

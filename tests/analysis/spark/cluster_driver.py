"""A driver on a cluster: it dissects captures, prints a line, waits for input, writes the tables.

python -m tests.analysis.spark.cluster_driver MASTER OUTPUT UNSHARED CAPTURE...

UNSHARED: a folder that executors do not share. Two attempts to write there come first, and their
errors are printed. Empty: no attempts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from analysis.spark import job
from analysis.spark.causes import cause
from analysis.spark.options import Request, parse
from analysis.spark.session import session
from analysis.spark.source import write_result
from dissector.errors import DissectorError
from dissector.runs import planning
from tests.analysis.spark.sharding import TEST_TABLES, write_with_spark


def main() -> None:
    """Run the driver."""
    master, output, unshared, *paths = sys.argv[1:]
    settings = {"spark.executor.memory": "600m", "spark.driver.memory": "600m"}
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    spark = session(master, settings | {"spark.executor.extraJavaOptions": options})

    def write() -> None:
        write_with_spark(spark, Request(paths, TEST_TABLES), Path(unshared, "tables"))

    def query() -> None:
        write_result(spark, parse({"path": paths[0], "result_dir": unshared}), ())

    planning.LEAST_RUN = 1
    if unshared:
        report(write)
        report(query)
    joined = job._joined

    def wait(*given: Any) -> Any:
        print("dissected", flush=True)
        sys.stdin.readline()
        return joined(*given)

    job._joined = wait
    write_with_spark(spark, Request(paths, TEST_TABLES, run_bytes=50_000), Path(output))
    spark.stop()


def report(attempt: Callable[[], None]) -> None:
    """Print the error of an attempt in a line."""
    try:
        attempt()
    except (DissectorError, PySparkException) as error:
        print(cause(error), flush=True)
    else:
        print("no error", flush=True)


if __name__ == "__main__":
    main()

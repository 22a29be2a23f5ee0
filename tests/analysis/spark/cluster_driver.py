"""A driver that dissects captures, prints a line, waits for input, and writes the tables.

python -m tests.analysis.spark.cluster_driver MASTER OUTPUT CAPTURE...
"""

from __future__ import annotations

import sys

from analysis.spark import plan
from analysis.spark.options import Request
from analysis.spark.session import session
from analysis.spark.writing import Folder
from tests.analysis.spark.sharding import TEST_TABLES


def main() -> None:
    """Run the driver."""
    master, output, *paths = sys.argv[1:]
    spark = session(master, {"spark.executor.memory": "600m", "spark.driver.memory": "600m"})
    with plan.dissect_captures(spark, Request(paths, TEST_TABLES, shards=4)) as dissection:
        print("dissected", flush=True)
        sys.stdin.readline()
        for name in TEST_TABLES:
            dissection.write(name, Folder(f"{output}/{name}").begin())
    spark.stop()


if __name__ == "__main__":
    main()

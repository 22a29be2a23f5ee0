"""A driver: dissects captures, says so, and writes the tables when it is told to go on.

python -m tests.analysis.spark.cluster_driver MASTER OUTPUT CAPTURE...
"""

from __future__ import annotations

import sys

from analysis.spark import plan
from analysis.spark.options import Request
from analysis.spark.session import session
from analysis.spark.writing import Folder
from tests.analysis.spark.dealing import SOME_TABLES


def main() -> None:
    """Run it."""
    master, output, *paths = sys.argv[1:]
    spark = session(master, {"spark.executor.memory": "600m", "spark.driver.memory": "600m"})
    with plan.whole(spark, Request(paths, SOME_TABLES, shares=4)) as dissected:
        print("dissected", flush=True)
        sys.stdin.readline()
        for name in SOME_TABLES:
            dissected.write(name, Folder(f"{output}/{name}").begin())
    spark.stop()


if __name__ == "__main__":
    main()

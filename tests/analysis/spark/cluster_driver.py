"""A driver: dissects captures, says so, and writes the tables when it is told to go on.

python cluster_driver.py MASTER OUTPUT CAPTURE...
"""

from __future__ import annotations

import sys

from dealing import TABLES

from analysis.spark import plan
from analysis.spark.options import Request
from analysis.spark.session import session


def main() -> None:
    """Run it."""
    master, output, *paths = sys.argv[1:]
    spark = session(master, {"spark.executor.memory": "600m", "spark.driver.memory": "600m"})
    with plan.tables(spark, Request(paths, TABLES, shares=4)) as tables:
        print("dissected", flush=True)
        sys.stdin.readline()
        for name, rows in tables.items():
            rows.write.parquet(f"{output}/{name}")
    spark.stop()


if __name__ == "__main__":
    main()

"""Options of Java in tests: several tests start Spark, and each start loads thousands of classes.

    python -m tests.analysis.spark.class_archive

archives these classes (class data sharing of the JVM, JEP 350) beside the packages of this Python.
With the archive, a session starts in about half of the time. Without it, nothing else changes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from analysis.spark import register
from analysis.spark.session import session, stop

ARCHIVE: Final = Path(sys.prefix, "spark-classes.jsa")
_NO_VERIFICATION: Final = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
_SILENT: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""Another Java, or another release of Spark, ignores the archive with a warning."""
_CAPTURE: Final = Path(__file__).parents[3] / "captures" / "kafka-4-quotas.pcap.zst"
_TIMEOUT: Final = 300
"""Timeout for Java to write the archive, in seconds."""


def java_options() -> str:
    """The options, for the variable `SPARK_SUBMIT_OPTS`."""
    if not ARCHIVE.exists():
        return _NO_VERIFICATION
    return f"{_NO_VERIFICATION} -XX:SharedArchiveFile={ARCHIVE} {_SILENT}"


def main() -> None:
    """Read a capture with Spark, write it as Parquet, and archive the classes that this loads."""
    from pyspark import SparkContext

    with tempfile.TemporaryDirectory(dir=sys.prefix) as folder:
        written = Path(folder, ARCHIVE.name)
        os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={written} {_SILENT}"
        spark = session("local[2]")
        register(spark)
        rows = spark.read.format("kafka_capture").load(str(_CAPTURE))
        rows.write.parquet(str(Path(folder, "rows")))
        rows.groupBy("api").count().toPandas()
        gateway = SparkContext._gateway
        assert gateway is not None
        stop(spark)
        gateway.proc.stdin.close()  # Java ends, and writes the archive
        gateway.proc.wait(_TIMEOUT)
        written.replace(ARCHIVE)


if __name__ == "__main__":
    main()

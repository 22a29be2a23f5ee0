"""Creates a Spark session. It needs only Java, and reports if Java is missing.

All sockets use the loopback address, unless you name a remote master.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from analysis.extras import needed
from analysis.spark.causes import cause
from analysis.startup import deferred_interruption
from dissector.errors import DissectorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
OLDEST_PYSPARK: Final = (4, 0)
"""The oldest version that is tested."""
ATTEMPTS: Final = 4
"""Attempts of a task on this machine, as on a cluster. With ``local[N]`` there is one attempt, and
the job fails if a Python process is killed, for example when memory is short."""
LOOPBACK: Final = "127.0.0.1"

_INSTALL: Final = (
    f"Spark needs Java {OLDEST_JAVA} or newer: install it (Debian: default-jre-headless), "
    "or set JAVA_HOME"
)
SMALL_BATCHES: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20)}
"""Rows that `answers` packs have megabytes; by default, Spark would read 256 MB of them at once."""
_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"
"""Java only passes bytes on. A second compilation takes longer than it saves, and concurrent
garbage collection takes cores from the tasks."""
_MALLOC: Final = "spark.executorEnv.MALLOC_{}_"
"""Settings of malloc in the Python processes of tasks. They keep the memory of a block for the next
block: returning it, and getting it again as empty pages, takes a third of the time of reading.
Larger allocations are Arrow's, which has its own pool."""
_SETTINGS: Final = {
    **SMALL_BATCHES,
    # Over TCP, a task waits 40 ms for an acknowledgement that the other end delays.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    _MALLOC.format("MMAP_THRESHOLD"): str(128 << 20),
    _MALLOC.format("TRIM_THRESHOLD"): str(512 << 20),
    "spark.driver.defaultJavaOptions": _JAVA_OPTIONS,
    "spark.executor.defaultJavaOptions": _JAVA_OPTIONS,
    "spark.ui.enabled": "false",
    # Errors of tasks that Spark repeats are logged with stack traces. Those that end a job raise.
    "spark.log.level": "FATAL",
    "spark.sql.session.timeZone": "UTC",
    # The timeout for a Python process to respond on an overloaded machine.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_LOCAL: Final = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def local(path: Path) -> str:
    """The URI of a local path for Spark, without percent-encoding."""
    return f"file://{path.absolute()}"


def find_java() -> Path:
    """The Java that Spark will run. Raises DissectorError with the package to install."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise DissectorError(f"{_INSTALL}; not found at {java}") from error
    version = re.search(r'version "(\d+)', result.stderr + result.stdout)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise DissectorError(f"{_INSTALL}; {java} is older")
    return java


def on_this_machine(cores: int | str) -> str:
    """The master for this machine."""
    return f"local[{cores},{ATTEMPTS}]"


def session(
    master: str | None = None, settings: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """A session, by default on all cores of this machine.

    `settings`: Spark properties. Raises DissectorError if Java or PySpark is missing or too old, or
    if Spark cannot start.
    """
    if (master or "").startswith("sc://") or os.environ.get("SPARK_REMOTE"):
        raise DissectorError(
            "this command does not support Spark Connect: name a master, such as "
            "spark://HOST:7077, and unset SPARK_REMOTE"
        )
    find_java()
    with needed("spark"):
        import pyspark
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < OLDEST_PYSPARK:
        minimum = ".".join(map(str, OLDEST_PYSPARK))
        raise DissectorError(
            f"PySpark {pyspark.__version__} is too old: install {minimum} or newer"
        )
    # The warning is repeated at each step, and does not concern the functions used here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    master = master or on_this_machine("*")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local") or LOOPBACK in master:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        settings = _LOCAL | {**settings}
    builder = SparkSession.builder.master(master).appName("kafka-dissector")
    for name, value in (_SETTINGS | {**settings}).items():
        builder = builder.config(name, value)
    try:
        with deferred_interruption():  # PySpark would leave Java behind
            session: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise DissectorError(f"cannot use Spark at {master}: {cause(error)}") from error
    return session


def stop(spark: SparkSession) -> None:
    """End a classic session, and what Java prints.

    Spark closes the connections of Python processes that wait for tasks, and then ends them. A
    process that notices the first before the second prints a traceback, which Java copies to its
    standard error. What fails from here on is an exception of `SparkSession.stop`.
    """
    from py4j.protocol import Py4JError

    java: Any = spark.sparkContext._jvm
    with suppress(Py4JError, OSError):  # Java has ended
        java.java.lang.System.err.close()
    spark.stop()

"""A Spark session that needs nothing but Java, and says so where there is none.

Everything stays on the loopback address, unless you name a master elsewhere.
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
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from analysis.spark.causes import cause
from dissector.errors import DissectorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
OLDEST_PYSPARK: Final = (4, 2)
"""The first one with `DataFrame.repartitionById`."""
ATTEMPTS: Final = 4
"""How often a task may run on this machine, as on a cluster. With ``local[N]`` it is once, and a
Python process that is killed, as the kernel does when memory is short, fails the job."""
LOOPBACK: Final = "127.0.0.1"

_INSTALL: Final = (
    f"Spark needs Java {OLDEST_JAVA} or newer: install it (Debian: default-jre-headless), "
    "or say where it is in JAVA_HOME"
)
SMALL_BATCHES: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20)}
"""A bundle is a row of megabytes; Spark would take 256 MB of them at a time out of its heap."""
_QUICKLY: Final = "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC"
"""Java only hands bytes on. To compile that once more, for speed, takes longer than it saves; and
to collect garbage meanwhile, in threads of its own, takes cores that tasks have."""
_KEEP: Final = "spark.executorEnv.MALLOC_{}_"
"""Settings of the C library's malloc, in the Python processes of tasks. What one block needed, the
next one needs: to give it back meanwhile, and get it again as empty pages, is a third of the time
of the first look. What is larger is of Arrow, which has a pool of its own."""
_ALWAYS: Final = {
    **SMALL_BATCHES,
    # Over TCP, a task waits 40 ms for an acknowledgement that the other end delays.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    _KEEP.format("MMAP_THRESHOLD"): str(128 << 20),
    _KEEP.format("TRIM_THRESHOLD"): str(512 << 20),
    "spark.driver.defaultJavaOptions": _QUICKLY,
    "spark.executor.defaultJavaOptions": _QUICKLY,
    # The driver collects some 16 bytes for each connection and 350 for each split. Spark would fail
    # the job at 1 GB of them, which is 67 million connections; the driver's memory is the limit.
    "spark.driver.maxResultSize": "0",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # How long a Python process may take to answer, on a machine that has more to do than it can.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_LOCAL: Final = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def local(path: Path) -> str:
    """The URI of a local path, as Spark reads it: nothing is percent-encoded in it."""
    return f"file://{path.absolute()}"


def find_java() -> Path:
    """The Java that Spark will run. Raises DissectorError, which says what to install."""
    home = os.environ.get("JAVA_HOME")
    named = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    try:
        said = subprocess.run([named, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise DissectorError(f"{_INSTALL}; there is none at {named}") from error
    version = re.search(r'version "(\d+)', said.stderr + said.stdout)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise DissectorError(f"{_INSTALL}; {named} is older")
    return named


def on_this_machine(cores: int | str) -> str:
    """The master for this machine."""
    return f"local[{cores},{ATTEMPTS}]"


def session(
    master: str | None = None, settings: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """A session, on all cores of this machine where no master is named.

    `settings`: Spark's own. Raises DissectorError where Java or PySpark is missing or too old, or
    there is no session to be had.
    """
    if (master or "").startswith("sc://") or os.environ.get("SPARK_REMOTE"):
        raise DissectorError(
            "Spark Connect is not supported: name a master, such as spark://HOST:7077, and unset "
            "SPARK_REMOTE"
        )
    find_java()
    try:
        import pyspark
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise DissectorError(
            "Spark is not installed: pip install 'kafka-dissector[spark]'"
        ) from error
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < OLDEST_PYSPARK:
        oldest = ".".join(map(str, OLDEST_PYSPARK))
        raise DissectorError(
            f"PySpark {pyspark.__version__} is installed: {oldest} or newer is needed"
        )
    # It says so at every step, and nothing that is used here is concerned.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    master = master or on_this_machine("*")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local") or LOOPBACK in master:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        settings = _LOCAL | {**settings}
    builder = SparkSession.builder.master(master).appName("kafka-dissector")
    for name, value in (_ALWAYS | {**settings}).items():
        builder = builder.config(name, value)
    try:
        made: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise DissectorError(f"no Spark at {master}: {cause(error)}") from error
    return made

"""A Spark session that needs nothing but Java, and says so where there is none.

Everything stays on the loopback address, unless a master elsewhere is asked for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dissector.errors import DissectorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
LOOPBACK: Final = "127.0.0.1"

_INSTALL: Final = (
    f"Spark needs Java {OLDEST_JAVA} or newer: install it (Debian: openjdk-17-jre-headless), "
    "or say where it is in JAVA_HOME"
)


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


def session(master: str = "local[*]", **settings: str) -> SparkSession:
    """A session. `settings`: Spark's, with `_` for `.`. Raises DissectorError."""
    find_java()
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise DissectorError(
            "Spark is not installed: pip install 'kafka-dissector[spark]'"
        ) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("kafka-dissector")
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        builder = builder.config("spark.driver.host", LOOPBACK)
        builder = builder.config("spark.driver.bindAddress", LOOPBACK)
    for name, value in settings.items():
        builder = builder.config(name.replace("_", "."), value)
    made: SparkSession = builder.getOrCreate()
    return made

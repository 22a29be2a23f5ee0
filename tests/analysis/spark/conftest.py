"""One Spark for all tests of it. `SLOW=1` has those run, too, that take minutes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: requirements-spark.txt")

from pyspark.sql import SparkSession

from analysis.spark.session import find_java, session
from dissector.errors import DissectorError


@pytest.fixture(scope="session")
def java() -> None:
    """Skips where there is no Java."""
    try:
        find_java()
    except DissectorError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """Two cores of this machine."""
    made = session(
        "local[2]", spark_driver_memory="1g", spark_sql_shuffle_partitions="2",
        spark_ui_showConsoleProgress="false",
    )  # fmt: skip
    yield made
    made.stop()


@pytest.fixture
def slow() -> None:
    """Skips where nobody asked for what takes minutes."""
    if not os.environ.get("SLOW"):
        pytest.skip("takes minutes: SLOW=1")

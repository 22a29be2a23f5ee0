"""One Spark session for all tests. `SLOW=1` enables tests that take minutes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from analysis.spark import register
from analysis.spark.session import find_java, session
from dissector.errors import DissectorError
from tests.analysis.spark.class_archive import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())

SMALL = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}


@pytest.fixture(scope="session")
def java() -> None:
    """Skip the test without Java."""
    try:
        find_java()
    except DissectorError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """A session on two cores of this machine."""
    spark_session = session("local[2]", SMALL)
    yield spark_session
    spark_session.stop()


@pytest.fixture
def kept_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The session, which the command `spark` uses, and does not stop."""
    monkeypatch.setattr("analysis.spark.session.stop", lambda spark: None)
    return spark


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    """The session, with the data source."""
    register(spark)
    return spark


@pytest.fixture
def slow() -> None:
    """Skip the test unless SLOW is set."""
    if not os.environ.get("SLOW"):
        pytest.skip("takes minutes: SLOW=1")

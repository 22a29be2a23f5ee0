"""One Spark for all tests of it. `SLOW=1` has those run, too, that take minutes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analysis.spark.session import find_java, session
from dissector.errors import DissectorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run on several processes, these run on one: a Spark is enough."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))


SMALL = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}


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
    made = session("local[2]", SMALL)
    yield made
    made.stop()


@pytest.fixture
def slow() -> None:
    """Skips where nobody asked for what takes minutes."""
    if not os.environ.get("SLOW"):
        pytest.skip("takes minutes: SLOW=1")

"""The folders in which data sources keep their results while the driver runs."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from analysis.spark.tasks import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PREFIX: Final = "kafka-dissector-spark-"


def create(spark: SparkSession, parent: str | None) -> Path:
    """A new folder in `parent`, by default in the temporary folder.

    Java deletes it when it ends, even after a driver that was killed. Jupyter kills Java together
    with a kernel that it kills or that does not end within 5 s. The next driver deletes the folders
    that were left, but not in a `parent`, where it could not see the drivers of other machines.
    With Spark Connect, this process deletes it, since Java may continue.
    """
    name = f"{_PREFIX}{uuid4().hex}"
    folder = Path(parent or tempfile.gettempdir(), name)
    if is_connect(spark):
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    else:
        java: Any = spark.sparkContext._jvm
        manager = java.org.apache.spark.util.ShutdownHookManager
        manager.registerShutdownDeleteDir(java.java.io.File(str(folder)))
    if parent is None:
        _delete_abandoned(folder.parent)
        hidden = folder.with_name(f".{name}")
        hidden.mkdir()
        _lock(hidden)  # until this process ends, in any way
        hidden.rename(folder)
    return folder


def _delete_abandoned(parent: Path) -> None:
    """Delete the folders of drivers that no longer run, whose locks are therefore free."""
    for folder in parent.glob(f"{_PREFIX}*"):
        if (lock := _lock(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """A descriptor of a folder with a lock; None if another process has the lock."""
    if fcntl is not None:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
            else:
                return descriptor
    return None

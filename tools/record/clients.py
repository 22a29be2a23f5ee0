"""Logs of clients.

librdkafka's own logger writes each line to standard error at once. With confluent-kafka's `logger`,
lines wait for the next poll, and their times are wrong. So standard error is redirected to the
file. The Python clients log through `logging`. The format adds the time in us and the client id,
which aiokafka's lines lack: each task inherits it from the task that started the client.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

CLIENT: ContextVar[str] = ContextVar("client", default="-")
"""The client id that a log line of a Python client belongs to."""
# Messages are cut: a Produce request is logged with all its records.
FORMAT = "%(created).6f|%(client)s|%(threadName)s|%(name)s|%(message).1000s"


@contextmanager
def standard_error_to(path: Path) -> Iterator[None]:
    """Append the standard error of this process to `path`."""
    sys.stderr.flush()
    before = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def logging_to(path: Path, *loggers: str) -> Iterator[None]:
    """Append the lines of `loggers`, including debug, to `path`."""

    def complete(record: logging.LogRecord) -> bool:
        record.client = CLIENT.get()
        record.exc_info = None  # a traceback contains paths of this machine
        return True

    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(complete)
    for name in loggers:
        logging.getLogger(name).setLevel(logging.DEBUG)
        logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        for name in loggers:
            logging.getLogger(name).removeHandler(handler)
        handler.close()

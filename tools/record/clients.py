"""Where clients write their logs.

librdkafka's own logger writes to standard error as things happen; through confluent-kafka's
`logger` lines would wait for the next poll, and their times would be wrong. So standard error
itself is turned to the file. The Python clients log through `logging`; what the format adds is time
in µs, and the client id, which aiokafka's lines lack: every task inherits it from the one that
started the client.
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
    """Append what the process writes to standard error to `path`."""
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
    """Append the lines of `loggers`, debug included, to `path`."""

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

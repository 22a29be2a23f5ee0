"""The cause of a Spark error in one sentence. Spark reports it at the end of a long text.

A Python exception of a task arrives as a traceback inside a Java exception. A Java exception lists
its causes one below the other.
"""

from __future__ import annotations

import re
from typing import Final

from dissector.errors import DissectorError

DOCS: Final = 'see "Executors" in docs/spark.md'

_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON: Final = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<detail>.*))?$")
_JAVA: Final = re.compile(r"^(?:Caused by|:) ?:? ?(?P<cause>[\w.$]+(?:Exception|Error): .+)$", re.M)
_MODULE: Final = re.compile(r"No module named '([\w.]+)'")
_NOT_RUN: Final = re.compile(r'Cannot run program "([^"]+)"')
"""A message of java.lang.ProcessBuilder; its cause lacks the name of the program."""
_KILLED: Final = "Python worker exited unexpectedly"
_GENERIC: Final = re.compile(r"An error occurred while calling|An exception was thrown from")


def cause(error: BaseException) -> str:
    """The cause of an error of Spark, in one line."""
    sentence = reason(error)
    if module := _MODULE.search(sentence):
        return (
            f"an executor's Python has no module {module[1]}: install kafka-dissector and its "
            f"dependencies on the executors; {DOCS}"
        )
    if program := _NOT_RUN.search(str(error)):
        return (
            f"an executor cannot run {program[1]}: install Python there, or set PYSPARK_PYTHON to "
            f"the path of the executors' Python; {DOCS}"
        )
    if _KILLED in sentence:
        return (
            "the Python process of a task ended unexpectedly, perhaps because memory was short; "
            f"{DOCS}"
        )
    return sentence


def reason(error: BaseException) -> str:
    """The cause in the text of an error of Spark, in one line, without a remedy or a full stop."""
    text = str(error)
    if isinstance(error, DissectorError):
        return text
    return (_of_python(text) or _of_java(text) or type(error).__name__).removesuffix(".")


def _of_python(text: str) -> str | None:
    """The last line of the last traceback: ``OSError: ...``; the message of a DissectorError."""
    _, is_there, traceback = text.rpartition(_TRACEBACK)
    if not is_there:
        return None
    for line in traceback.splitlines()[1:]:
        if line.strip() and not line.startswith((" ", "\t")):
            raised = _PYTHON.match(line)
            if raised and raised["kind"].startswith("dissector.") and raised["detail"]:
                return raised["detail"]
            return line.strip()
    return None


def _of_java(text: str) -> str:
    """The last cause with a message, or the first specific line."""
    causes = [match["cause"] for match in _JAVA.finditer(text)]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    specific = [line for line in lines if not _GENERIC.search(line)]
    return causes[-1] if causes else next(iter(specific or lines), "")

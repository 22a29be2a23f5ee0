"""Files that roll: one after another, of which only the latest are kept.

A file has the time at which the session began and a number in its name, so that names sort as
time goes, and no session writes over what another one wrote.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Rolling:
    """When a file is over, and how many of them stay. None: not for this reason; all."""

    bytes: int | None = None
    seconds: float | None = None
    keep: int | None = None

    @property
    def is_wanted(self) -> bool:
        """There is a reason for a second file."""
        return self.bytes is not None or self.seconds is not None


class Files:
    """The names of the files of one kind, `stem` and `suffix` with a number between them."""

    def __init__(self, stem: Path, suffix: str, rolling: Rolling) -> None:
        self._stem = stem
        self._suffix = suffix
        self._rolling = rolling
        self._session = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self._count = 0
        self._kept: deque[Path] = deque()
        self._begun = 0.0

    def next(self) -> Path:
        """The name of the next file. Files beyond those that are kept are removed."""
        self._count += 1
        self._begun = time.monotonic()
        name = f"{self._stem.name}-{self._session}-{self._count:05d}{self._suffix}"
        self._kept.append(self._stem.with_name(name))
        while self._rolling.keep is not None and len(self._kept) > self._rolling.keep:
            self._kept.popleft().unlink(missing_ok=True)
        return self._kept[-1]

    def is_over(self, size: int = 0) -> bool:
        """Whether the file of that size is to be followed by the next one."""
        limit, seconds = self._rolling.bytes, self._rolling.seconds
        too_old = seconds is not None and time.monotonic() - self._begun >= seconds
        return too_old or (limit is not None and size >= limit)

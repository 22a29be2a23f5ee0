"""Compiled loops, if a compiler was available: the same results in less time.

A few loops depend on the previous position in the bytes, which takes NumPy many passes over arrays.
They have two implementations: NumPy, in the module that needs the loop, and C, in `loops.c`. The
module selects one:

    if kernel.COMPILED:
        kernel.loops.read_fields(...)

Both return the same arrays; `tests/dissector/kernel` compares them. Without a compiler at
installation, or with `KAFKA_DISSECTOR_PURE=1` in the environment, `COMPILED` is False, and `loops`
does not exist.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import numpy as np

HASH_KEY: Final = np.frombuffer(os.urandom(16), np.uint64)
"""Key of the hash tables. It is random in each process, so that no capture can be written whose
endpoints or words collide. No row depends on it."""

COMPILED = False
"""Whether `loops` exists."""

if not os.environ.get("KAFKA_DISSECTOR_PURE"):
    with suppress(ImportError):
        from dissector.kernel import loops as loops

        COMPILED = True

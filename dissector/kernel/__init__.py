"""The loops that are compiled, where a compiler was there: the same results, sooner.

A few loops go from one place in the bytes to the next, which NumPy can only do in many passes over
arrays. They are written twice: in NumPy where they belong, readable and always there, and in C in
`loops.c`. The module that has the first one asks here for the second:

    if kernel.COMPILED:
        kernel.loops.read_fields(...)

Both give the same arrays; `tests/dissector/kernel` holds them to it. Without a compiler at the
installation, or with `KAFKA_DISSECTOR_PURE=1` in the environment, `COMPILED` is False, and there is
no `loops`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import numpy as np

HASH_KEY: Final = np.frombuffer(os.urandom(16), np.uint64)
"""Key of the hash tables: chosen anew in each process, so that nobody can write a capture whose
endpoints or words collide. No row depends on it."""

COMPILED = False
"""Whether `loops` is there."""

if not os.environ.get("KAFKA_DISSECTOR_PURE"):
    with suppress(ImportError):
        from dissector.kernel import loops as loops

        COMPILED = True

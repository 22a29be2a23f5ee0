"""The loops of the project: functions of plain arrays. `__init__.pyi` declares them.

Each loop depends on the bytes before it, which arrays of NumPy do not fit. The loops are Python in
the dialect of Cython (docs/decisions/native.md). Where a C compiler was available at installation,
they are compiled; otherwise the same files run as Python, hundreds of times slower, and a line on
standard error reports it. Callers do not know the difference. `KAFKA_DISSECTOR_PURE=1` selects
Python, for tests and debuggers.

Every index into an array is checked, so that no bytes of a capture make a loop read or write
outside of its arrays: an index out of range raises IndexError. Compiled loops release the GIL.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

HASH_KEY = np.frombuffer(os.urandom(16), np.uint64)

MODULES = ("packets", "segments", "streams", "messages", "matching", "rows", "records", "words")
FUNCTIONS: dict[str, list[str]] = {}


def source(name: str) -> ModuleType:
    loader = SourceFileLoader(f"{__name__}.{name}", str(Path(__file__).with_name(f"{name}.py")))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def as_python(function: Callable[..., Any]) -> Callable[..., Any]:
    def view(value: object) -> object:
        if isinstance(value, np.ndarray):
            return memoryview(value)
        return [*map(view, value)] if isinstance(value, list) else value

    @wraps(function)
    def run(*arguments: object) -> Any:
        return function(*map(view, arguments))

    return run


def _load(*, compiled: bool) -> bool:
    """Load all loops. Returns whether they are compiled."""
    for name in MODULES:
        module = import_module(f"{__name__}.{name}") if compiled else source(name)
        if compiled and str(module.__file__).endswith(".py"):
            return _load(compiled=False)
        FUNCTIONS[name] = [
            each
            for each, item in vars(module).items()
            if getattr(item, "__module__", "") == module.__name__ and not each.startswith("_")
        ]
        for function in FUNCTIONS[name]:
            loop = getattr(module, function)
            globals()[function] = loop if compiled else as_python(loop)
    return compiled


COMPILED = _load(compiled=not os.environ.get("KAFKA_DISSECTOR_PURE"))
if not COMPILED and not os.environ.get("KAFKA_DISSECTOR_PURE"):
    from multiprocessing import parent_process  # imported only here, as it takes some ms

    if parent_process() is None:
        print(
            f"kafka-dissector: {Path(__file__).parent} is not compiled (installed without a C "
            "compiler, or a clone hides the installed package): reading takes 10 times as long",
            file=sys.stderr,
        )

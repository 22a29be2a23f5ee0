"""Compiles the loops of `dissector/_native`, if there is a C compiler; else they run as Python."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

PACKAGE = "dissector._native"
SHARED = f"{PACKAGE}.cython_shared"
"""Cython's code for arrays and calls, which each loop would compile again: twice the time."""


def extension(name: str, *sources: str) -> Extension:
    return Extension(
        name,
        list(sources),
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["-O3", "-g0", "-w"],  # warnings in generated code help nobody
        py_limited_api=True,
    )


loops = [
    extension(f"{PACKAGE}.{path.stem}", str(path))
    for path in sorted(Path("dissector/_native").glob("*.py"))
    if path.read_text().startswith("# cython:")
]
extensions = cythonize(
    [*loops, extension(SHARED)],
    build_dir="build/loops",
    nthreads=(os.cpu_count() or 1) if sys.platform == "linux" else 0,  # by processes, which fork
    compiler_directives={"show_performance_hints": False},  # a test reads them
    shared_utility_qualified_name=SHARED,
)
for each in extensions:
    each.optional = True  # of those that cythonize returns: it does not keep the option

setup(ext_modules=extensions)

"""Compiles the loops of `dissector/_native`, if there is a C compiler; else they run as Python."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

LOOPS = [
    path
    for path in sorted(Path("dissector/_native").glob("*.py"))
    if path.read_text().startswith("# cython:")
]

extensions = cythonize(
    [
        Extension(
            f"dissector._native.{path.stem}",
            [str(path)],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=["-O3", "-g0"],
            py_limited_api=True,
        )
        for path in LOOPS
    ],
    build_dir="build/loops",
    nthreads=(os.cpu_count() or 1) if sys.platform == "linux" else 0,  # by processes, which fork
)
for extension in extensions:
    extension.optional = True  # of those that cythonize returns: it does not keep the option

setup(ext_modules=extensions)

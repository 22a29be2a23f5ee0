"""The loops as Cython sees them: no Python inside of them, and all indices are checked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dissector import _native
from tests.fuzz import fuzz_native


def test_cython_has_no_hint(tmp_path: Path) -> None:
    """A hint is a call that takes Python's lock, or an operation on Python objects; the checks of
    bounds are meant. One process compiles all loops, of a copy: it writes C beside its source."""
    pytest.importorskip("Cython")
    loops = tmp_path / "dissector" / "_native"
    shutil.copytree(fuzz_native.LOOPS, loops, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "dissector" / "__init__.py").touch()
    sources = [loops / f"{name}.py" for name in _native.FUNCTIONS]
    run = subprocess.run(
        [sys.executable, "-m", "cython", "-3", *(each.relative_to(tmp_path) for each in sources)],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert all(each.with_suffix(".c").exists() for each in sources)
    lines = (run.stdout + run.stderr).splitlines()
    hints = [line for line in lines if "hint" in line and "boundscheck" not in line]
    assert not hints


@pytest.mark.parametrize("name", _native.FUNCTIONS)
def test_bounds_are_checked(name: str) -> None:
    """Only methods that check the range of a whole number do without the check of each byte."""
    source = (fuzz_native.LOOPS / f"{name}.py").read_text()
    assert "boundscheck=True, wraparound=False" in source.splitlines()[0]
    methods = re.split(r"\n    @cython.final\n|\n    @cython.cfunc\n", source)
    for method in methods:
        if "boundscheck(False)" in method:
            assert "raise IndexError" in method
    assert "cython.pointer" not in source


WITHOUT_COMPILED_LOOPS = """
import importlib.machinery, importlib.util, sys
import multiprocessing, numpy, dissector._native
sys.modules["cython"] = None  # nor is the package installed
sources = importlib.machinery.SourceFileLoader, [".py"]
python_only = importlib.machinery.FileFinder.path_hook(sources)
sys.path_hooks[:] = [python_only]
sys.path_importer_cache.clear()
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "loops", f"{folder}/__init__.py", submodule_search_locations=[folder]
)
sys.modules["loops"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.COMPILED)
"""


def test_without_a_compiler_a_line_reports_it() -> None:
    environment = {key: os.environ[key] for key in os.environ if key != "KAFKA_DISSECTOR_PURE"}
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILED_LOOPS, str(fuzz_native.LOOPS)],
        capture_output=True, text=True, check=True, cwd=fuzz_native.ROOT, env=environment,
    )  # fmt: skip
    assert run.stdout == "False\n"
    (line,) = set(run.stderr.splitlines())
    assert f"{fuzz_native.LOOPS} is not compiled" in line

"""Notebooks run from start to end on committed captures, and contain no logic."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))

LOGIC = (
    ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While, ast.If, ast.IfExp, ast.Try,
    ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp,
)  # fmt: skip


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def charts(notebook: nbformat.NotebookNode) -> int:
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    outputs = [output for cell in code(notebook) for output in cell.outputs]
    return [output.data["text/plain"] for output in outputs if "data" in output]


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """One kernel for all notebooks, because imports take most of the time."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(NOTEBOOKS))
    yield manager
    manager.shutdown_kernel()  # now=True would kill Java before it deletes its folders


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str, kernel: KernelManager) -> None:
    if name == "06_spark":
        pytest.importorskip("pyspark")
        if shutil.which("java") is None:
            pytest.skip("Spark needs Java")
    notebook = read(name)
    committed = read(name)
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))  # clear variables
    limits = dict.fromkeys(("timeout", "startup_timeout", "iopub_timeout"), 900)
    NotebookClient(notebook, km=kernel, **limits).execute()  # raises the error of a cell
    assert charts(notebook) == charts(committed) > 0
    assert texts(notebook) == texts(committed)


def test_the_list_of_notebooks() -> None:
    assert NAMES == [
        "01_first_look", "02_latency", "03_throttle_and_errors", "04_groups",
        "05_topology_and_audit", "06_spark",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_no_logic(name: str) -> None:
    for cell in code(read(name)):
        logic = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, LOGIC)]
        assert logic == [], cell.source


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_notebook_was_run_and_contains_no_local_paths(name: str) -> None:
    notebook = read(name)
    assert [cell.execution_count for cell in code(notebook)] == list(
        range(1, len(code(notebook)) + 1)
    )
    assert not [o for cell in code(notebook) for o in cell.outputs if o.output_type == "error"]
    texts = re.sub(r'"image/png": "[^"]*"', "", nbformat.writes(notebook))
    assert re.search(r"/(root|home|work|tmp|Users|opt)/", texts) is None

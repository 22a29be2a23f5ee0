"""One package has the public names of both, with their types and documentation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

import analysis
import dissector
import kafka_dissector
from tests.programs import printed

ROOT = Path(__file__).parents[2]
NAMES = sorted({*kafka_dissector.__all__})
VALUES = {"ANSWERS", "DIAGNOSIS_TABLES", "__version__"}
"""Neither functions nor classes."""
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def test_the_names_are_those_of_both_packages() -> None:
    assert {*kafka_dissector.__all__} == {*dissector.__all__} | {*analysis.__all__}
    assert dir(kafka_dissector) == NAMES
    assert {*dissector.__all__} & {*analysis.__all__} == {"__version__"}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_that_of_its_package(name: str) -> None:
    package = dissector if name in dissector.__all__ else analysis
    assert getattr(kafka_dissector, name) == getattr(package, name)


@pytest.mark.parametrize("name", sorted({*NAMES} - VALUES))
def test_a_name_is_documented(name: str) -> None:
    named = getattr(kafka_dissector, name)
    assert callable(named)
    assert named.__doc__
    assert not named.__doc__.startswith(f"{name}(")  # what a dataclass without a docstring has


def test_other_names_are_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'latencies'"):
        kafka_dissector.latencies  # noqa: B018


def test_names_are_typed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    lines = ["import kafka_dissector as kd", *(f"reveal_type(kd.{name})" for name in NAMES)]
    program.write_text("\n".join([*lines, "kd.latencies"]))
    report, _, status = api.run(["--config-file", str(ROOT / "pyproject.toml"), str(program)])
    assert status == 1
    *revealed, error, _ = report.splitlines()
    assert len(revealed) == len(NAMES)
    assert not [line for line in revealed if line.endswith(('-> Any"', 'is "Any"'))]
    assert 'Module has no attribute "latencies"' in error


def test_the_import_brings_no_other_package() -> None:
    program = "import sys, kafka_dissector; print({'pandas', 'pyarrow', 'duckdb'} & {*sys.modules})"
    assert printed(program) == "set()\n"


def test_a_script_may_have_the_name_of_a_package(tmp_path: Path) -> None:
    """Python searches the folder of the script first."""
    script = tmp_path / "analysis.py"
    script.write_text("import kafka_dissector as kd; print(kd.load.__module__, kd.open_capture)")
    done = subprocess.run([sys.executable, script], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.stdout.startswith("analysis <function open_capture"), done.stderr


def test_a_module_with_the_name_of_a_package_is_named(tmp_path: Path) -> None:
    module = tmp_path / "dissector.py"
    module.touch()
    script = tmp_path / "script.py"
    script.write_text("import dissector, kafka_dissector")
    done = subprocess.run([sys.executable, script], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: <module 'dissector' from '{module}'> has the name of a package of "
        "kafka_dissector: rename it"
    )


def test_kafka_dissector_is_the_command() -> None:
    words = [sys.executable, "-m", "kafka_dissector", "--version"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("kafka-dissector")

"""The examples in `deploy` and their page: options exist, tools accept the files, queries run."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import click
import duckdb
import pyarrow.parquet as pq
import pytest

import kafka_dissector as kd
from analysis.cli import app
from tools.shown_output import ROOT

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "kafka-dissector.service"
RECORDING = ROOT / "captures" / "kafka-4-errors.pcap.zst"


def unit_command() -> list[str]:
    text = UNIT.read_text().replace("\\\n", " ")
    return shlex.split(re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)[0])


def pod_arguments() -> list[str]:
    text = (DEPLOY / "kubernetes" / "daemonset.yaml").read_text()
    arguments = re.findall(r"args: \[(.+)\]", text)[0]
    return [word.strip().strip('"') for word in arguments.split(",")]


@pytest.mark.parametrize("arguments", [unit_command()[1:], pod_arguments()], ids=["unit", "pod"])
def test_arguments_are_valid(arguments: list[str]) -> None:
    context = click.Context(app)
    command = app.get_command(context, arguments[0])
    assert command is not None
    command.make_context(arguments[0], arguments[1:], parent=context)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace(unit_command()[0], "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", str(path)]
    verified = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_builds_the_objects() -> None:
    command = ["kubectl", "kustomize", str(DEPLOY / "kubernetes")]
    objects = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=180
    ).stdout
    assert re.findall(r"^kind: (\w+)", objects, re.MULTILINE) == ["Namespace", "DaemonSet"]
    assert "image: registry.example.com/kafka-dissector:" in objects


def test_the_image_has_all_sources() -> None:
    listed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert all((ROOT / name).exists() for name in listed)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {
        "tests",
        "tools",
        "bench",
    }
    assert packages | {"setup.py", "share"} <= set(listed)


def test_copies_without_tags_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    version = project["tool"]["setuptools_scm"]["fallback_version"]
    assert f"\nARG VERSION={version}\n" in (DEPLOY / "Containerfile").read_text()
    kustomization = (DEPLOY / "kubernetes" / "kustomization.yaml").read_text()
    assert kustomization.endswith(f"\n    newTag: {version}\n")


def test_queries_over_exported_tables(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "service.md").read_text()
    queries = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert len(queries) == 2
    for name, table in kd.open_capture(RECORDING).tables(["exchanges", "errors"]).items():
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "1.parquet")
    for query in queries:
        local = query.replace("/var/lib/kafka-dissector", str(tmp_path))
        assert duckdb.sql(local).to_arrow_table().num_rows, query

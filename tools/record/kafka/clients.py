"""Client programs in several languages.

A `Program` is a command, to which the scenario appends the bootstrap servers and other arguments,
and its environment variables. The functions download and build what a program needs, so call them
before the recording starts.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.record.kafka import artifacts
from tools.record.kafka.artifacts import HERE, SMALL_JVM

Program = tuple[list[str], dict[str, str]]

JVM = [*SMALL_JVM, "-Xmx192m"]


def in_java(classpath: str, program: str) -> Program:
    """java/PROGRAM.java, which is compiled at its start."""
    return [*JVM, "-cp", classpath, str(HERE / "java" / f"{program}.java")], {}


def in_python(program: str, packages: Path | None = None) -> Program:
    """python/PROGRAM.py, with the folder `packages` first on its path."""
    command = [sys.executable, str(HERE / "python" / f"{program}.py")]
    return command, {"PYTHONPATH": str(packages)} if packages else {}


def in_node(packages: Path, program: str) -> Program:
    """node/PROGRAM.cjs."""
    modules = {"NODE_PATH": str(packages / "node_modules")}
    return ["node", str(HERE / "node" / f"{program}.cjs")], modules


def in_go(program: str) -> Program:
    """go/PROGRAM."""
    return [str(artifacts.go(HERE / "go" / program))], {}


def in_rust(program: str) -> Program:
    """rust/PROGRAM."""
    return [str(artifacts.cargo(HERE / "rust" / program))], {}

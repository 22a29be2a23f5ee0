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
from tools.record.kafka.recording import Recording

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


def java(recording: Recording, classpath: str, program: str, *arguments: str) -> str:
    """Run a Java program to its end, and return its output."""
    command, _ = in_java(classpath, program)
    return recording.run(program, [*command, *arguments])


def python(
    recording: Recording, program: str, *arguments: str, packages: Path | None = None
) -> str:
    """Run a Python program to its end, and return its output."""
    command, env = in_python(program, packages)
    return recording.run(program, [*command, *arguments], env)

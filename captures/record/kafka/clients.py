"""Clients, each in its own language, started as a user would start them.

A client program takes the bootstrap servers and then what the scenario gives it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from captures.record.kafka.artifacts import HERE
from captures.record.kafka.recording import Recording

JVM = ["java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]


def java(
    recording: Recording, classpath: str, program: str, *arguments: str, name: str | None = None
) -> str:
    """Run java/PROGRAM.java to its end; what it printed."""
    return recording.run(name or program, java_command(classpath, program, *arguments))


def java_start(
    recording: Recording, classpath: str, program: str, *arguments: str, name: str | None = None
) -> subprocess.Popen[bytes]:
    """Start java/PROGRAM.java, and leave it running."""
    return recording.start(name or program, java_command(classpath, program, *arguments))


def java_command(classpath: str, program: str, *arguments: str) -> list[str]:
    return [*JVM, "-cp", classpath, str(HERE / "java" / f"{program}.java"), *arguments]


def python(
    recording: Recording, program: str, *arguments: str, packages: Path | None = None
) -> str:
    """Run python/PROGRAM.py to its end, `packages` first on its path; what it printed."""
    command = [sys.executable, str(HERE / "python" / f"{program}.py"), *arguments]
    path = {"PYTHONPATH": str(packages)} if packages else {}
    return recording.run(program, command, {**os.environ, **path})

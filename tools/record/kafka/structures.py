"""Writes structures that Kafka's own classes encode, for tests of the decoders.

    python -m tools.record.kafka.structures

The file is tests/data/structure_vectors.jsonl.gz. `java/Structures.java` creates a random instance
of every structure version in the newest jars. `java/Framed.java`, `java/Streams.java` and
`java/Connect.java` write fixed values with Kafka's serializers, including the bytes around the
structures.
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from tools.record.kafka import artifacts
from tools.record.kafka.artifacts import run

VECTORS = Path(__file__).parents[3] / "tests" / "data" / "structure_vectors.jsonl.gz"
SEED = "4"
STREAMS = f"org.apache.kafka:kafka-streams:{artifacts.KAFKA_4}"
CONNECT = f"org.apache.kafka:connect-runtime:{artifacts.KAFKA_4}"


def lines(class_path: str, program: str, *arguments: str) -> str:
    """The output of a program of `java`, which is compiled with Messages because Structures needs
    it.
    """
    sources = [str(artifacts.HERE / "java" / f"{name}.java") for name in {program, "Messages"}]
    with tempfile.TemporaryDirectory() as folder:
        run(["javac", "-nowarn", "-d", folder, "-cp", class_path, *sources])
        return run(["java", "-cp", f"{folder}:{expanded(class_path)}", program, *arguments])


def expanded(class_path: str) -> str:
    """The jars of a class path by name, because Structures reads their content."""
    return ":".join(str(jar) for jar in sorted(Path(class_path.removesuffix("/*")).glob("*.jar")))


def main() -> None:
    """Write the vectors."""
    newest, streams = artifacts.broker(artifacts.KAFKA_4), artifacts.maven(STREAMS)
    printed = (
        lines(newest, "Structures", SEED)
        + lines(streams, "Structures", SEED)
        + lines(newest, "Framed")
        + lines(streams, "Streams")
        + lines(artifacts.maven(CONNECT), "Connect")
    )
    once = "".join(dict.fromkeys(printed.splitlines(keepends=True)))
    VECTORS.write_bytes(gzip.compress(once.encode(), mtime=0))
    print(f"{once.count(chr(10))} vectors, {VECTORS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

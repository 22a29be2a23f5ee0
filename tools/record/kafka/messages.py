"""Writes random messages that Kafka's own classes encode, for tests of the decoders.

    python -m tools.record.kafka.messages

The file is tests/data/kafka_clients_vectors.jsonl.gz: messages of every version in the newest
kafka-clients jar, and of every older version in that of 3.9. `java/Messages.java` creates them. Of
the `DRAWS` messages of a version, the file has the first one, and the one with the most fields. A
line contains api_key, api, direction, version, frame (hex, after the 4-byte size), expect
(correlation_id, client_id, body), and the release of the jar.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tools.record.kafka import artifacts

VECTORS = Path(__file__).parents[3] / "tests" / "data" / "kafka_clients_vectors.jsonl.gz"
SEED, DRAWS = "4", "12"
Vector = dict[str, Any]


def vectors(release: str) -> dict[tuple[int, str, int], list[Vector]]:
    """The random messages of each version in one release."""
    by_version: defaultdict[tuple[int, str, int], list[Vector]] = defaultdict(list)
    for line in artifacts.java(artifacts.client(release), "Messages", SEED, DRAWS).splitlines():
        vector: Vector = {**json.loads(line), "release": release}
        by_version[vector["api_key"], vector["direction"], vector["version"]].append(vector)
    return by_version


def fields(value: Any, path: str = "") -> set[str]:
    """The paths of all fields in a body; the elements of an array have the same path."""
    if isinstance(value, dict):
        inside = [fields(each, f"{path}.{name}") for name, each in value.items()]
    elif isinstance(value, list):
        inside = [fields(each, f"{path}[]") for each in value]
    else:
        inside = []
    return {path}.union(*inside)


def main() -> None:
    """Write the vectors."""
    by_version = vectors(artifacts.KAFKA_3) | vectors(artifacts.KAFKA_4)
    chosen = []
    for _, drawn in sorted(by_version.items()):
        first, *others = drawn
        chosen += [first, max(others, key=lambda vector: len(fields(vector["expect"]["body"])))]
    lines = "".join(f"{json.dumps(vector, ensure_ascii=False)}\n" for vector in chosen)
    VECTORS.parent.mkdir(exist_ok=True)
    VECTORS.write_bytes(gzip.compress(lines.encode(), mtime=0))
    print(f"{len(chosen)} vectors, {VECTORS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

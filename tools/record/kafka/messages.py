"""Writes random messages that Kafka's own classes encode, for tests of the decoders.

    python -m tools.record.kafka.messages

The file is tests/data/kafka_clients_vectors.jsonl.gz: one message of every version in the newest
kafka-clients jar, and of every older version in that of 3.9. `java/Messages.java` creates them. A
line contains api_key, api, direction, version, frame (hex, after the 4-byte size), expect
(correlation_id, client_id, body), and the release of the jar.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tools.record.kafka import artifacts

VECTORS = Path(__file__).parents[3] / "tests" / "data" / "kafka_clients_vectors.jsonl.gz"
SEED = "4"


def vectors(release: str) -> list[dict[str, Any]]:
    """A random message of each version in one release."""
    printed = artifacts.java(artifacts.client(release), "Messages", "vectors", SEED, "1")
    return [{**json.loads(line), "release": release} for line in printed.splitlines()]


def main() -> None:
    """Write the vectors."""
    chosen: dict[tuple[int, str, int], dict[str, Any]] = {}
    for release in (artifacts.KAFKA_3, artifacts.KAFKA_4):
        for vector in vectors(release):
            chosen[vector["api_key"], vector["direction"], vector["version"]] = vector
    lines = "".join(f"{json.dumps(chosen[key], ensure_ascii=False)}\n" for key in sorted(chosen))
    VECTORS.parent.mkdir(exist_ok=True)
    VECTORS.write_bytes(gzip.compress(lines.encode(), mtime=0))
    print(f"{len(chosen)} vectors, {VECTORS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

"""Random messages by Kafka's own classes: what the decoders are tested against.

    python -m tools.record.kafka.messages

writes tests/data/kafka_clients_vectors.jsonl.gz: one message of every version that the newest
kafka-clients jar knows, and of every older version that 3.9 still knew. `java/Messages.java` makes
them; a line is what a frame holds: api_key, api, direction, version, frame (hex, after the 4-byte
size), expect (correlation_id, client_id, body), and the release of the jar.
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
    """A random message of each version that one release knows."""
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

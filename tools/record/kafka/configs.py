"""Writes the names of configurations whose values are no secrets.

    python -m tools.record.kafka.configs

The file is dissector/protocol/definitions/configs.txt. `java/Configs.java` reads the names from the
newest broker and from 3.9.
"""

from __future__ import annotations

from pathlib import Path

from tools.record.kafka import artifacts

PAGE = Path(__file__).parents[3] / "dissector" / "protocol" / "definitions" / "configs.txt"
HEAD = """\
# Configurations of brokers, topics, groups and client metrics whose values Kafka takes for no
# secret: all that Kafka {newest} and {older} define, but those of type PASSWORD.
"""


def names(release: str) -> set[str]:
    return set(artifacts.java(artifacts.broker(release), "Configs").split())


def main() -> None:
    """Write the file."""
    releases = artifacts.KAFKA_4, artifacts.KAFKA_3
    all_names = sorted(set.union(*map(names, releases)))
    head = HEAD.format(newest=releases[0], older=releases[1])
    PAGE.write_text("\n".join([head, *all_names, ""]))
    print(f"{len(all_names)} names")


if __name__ == "__main__":
    main()

"""Encrypted recordings on random networks have the rows of the plain ones."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from tests.rewriting.cases import BLOCKS, original, rows, write
from tests.rewriting.encryption import encrypted
from tests.rewriting.flows import recording
from tests.rewriting.network import drawn, packets

NAMES = ("kafka-4-kafkajs.pcap.zst", "kafka-4-java.pcap.zst", "kafka-3-librdkafka-0-11.pcap.zst")


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("blocks", ["default", "small"])
@pytest.mark.parametrize("name", NAMES)
def test_decrypted_rows_are_the_plain_ones(
    tmp_path: Path, name: str, blocks: str, version: str
) -> None:
    chance = random.Random(f"{name} {version}")
    whole, keylog = encrypted(recording(name), tmp_path, version)
    options = drawn(chance, whole.size, has_repeated_ids=False)
    paths = write(tmp_path, packets(whole, options, chance))
    size = chance.randint(*BLOCKS[blocks])
    assert rows(paths, size, keylog=keylog) == original(name), options

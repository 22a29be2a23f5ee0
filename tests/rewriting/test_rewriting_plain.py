"""The rewriter reads recordings completely, and writing them again changes no row."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.rewriting.cases import original, rows, write
from tests.rewriting.flows import Address, Incomplete, Recording, recording
from tests.rewriting.network import TUNNELS, Options, packets

NAMES = ("aiokafka-tansu.pcap", "librdkafka-tansu.pcap.zst", "kafka-4-kafkajs.pcap.zst")


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_network_changes_nothing(tmp_path: Path, name: str) -> None:
    paths = write(tmp_path, packets(recording(name), Options(), random.Random(0)))
    assert rows(paths) == original(name)


@pytest.mark.parametrize("tunnel", TUNNELS)
def test_tunnels(tmp_path: Path, tunnel: str) -> None:
    options = Options(tunnel=tunnel)
    paths = write(tmp_path, packets(recording(NAMES[0]), options, random.Random(0)))
    assert rows(paths) == original(NAMES[0])


def streams(whole: Recording) -> dict[tuple[Address, Address], bytes]:
    """The bytes that were sent, by sender and receiver."""
    sent: dict[tuple[Address, Address], bytes] = {}
    for each in whole.chunks:
        ends = whole.flows[each.flow].ends
        key = ends[each.end], ends[1 - each.end]
        sent[key] = sent.get(key, b"") + each.data
    return sent


@pytest.mark.parametrize("seed", range(12))
def test_every_byte_is_sent(tmp_path: Path, seed: int) -> None:
    whole = recording(NAMES[0])
    options = Options(
        segments="small", merges=seed % 2 == 0, repeats=0.3, overlaps=0.3, keepalives=0.1,
        wraps=seed % 3 == 0,
    )  # fmt: skip
    (path,) = write(tmp_path, packets(whole, options, random.Random(seed)))
    assert streams(recording(str(path))) == streams(whole)


def test_a_recording_with_missing_bytes_is_refused() -> None:
    with pytest.raises(Incomplete):
        recording("kafka-4-cut-snaplen.pcap.zst")

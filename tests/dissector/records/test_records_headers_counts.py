"""Record counts of batches agree with `read_batches`, for complete and for cut data."""

from __future__ import annotations

import numpy as np
import pytest

from dissector import open_capture
from dissector.exchanges.decoded_fields import flat
from dissector.protocol import registry
from dissector.records.batch_headers import record_counts
from dissector.records.batch_reader import read_batches
from tests.captures.recorded import CAPTURES


def fields(name: str) -> list[bytes]:
    """The records of the Produce requests of a capture."""
    record_fields = []
    for exchange in open_capture(CAPTURES / name).exchanges():
        if exchange.api == registry.api_name(0) and exchange.request:
            for topic in exchange.request.body["topic_data"]:
                record_fields += [part["records"] for part in topic["partition_data"]]
    return [field for field in record_fields if field]


@pytest.mark.parametrize(
    "name", ["kafka-3-pykafka.pcap.zst", "kafka-3-java-0-8.pcap.zst", "kafka-4-java.pcap.zst"]
)
def test_counts_are_those_of_the_headers(name: str) -> None:
    whole = fields(name)[:40]
    assert whole
    cut = [field[: len(field) * part // 7] for field in whole for part in range(8)]
    space, borders = flat([*cut, b"", bytes(70), b"\xff" * 70])
    start, length = borders[:-1], np.diff(borders)
    field, count = record_counts(space, start, length)
    batches = read_batches(space, start, length, verify=False)
    assert field.tolist() == batches.field.tolist()
    assert count.tolist() == np.where(batches.truncated, 0, batches.record_count).tolist()
    assert batches.truncated.any()

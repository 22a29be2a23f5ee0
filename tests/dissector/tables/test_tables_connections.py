"""What messages show about clients, in the table `connections`."""

from __future__ import annotations

import numpy as np
import pytest

from dissector.exchanges.correlator import Correlator
from dissector.exchanges.topic_names import TopicNames
from dissector.streams.connections.table import LAST_TIME, ConnectionTable
from dissector.tables.connections import Connections
from tests.dissector.exchanges.exchange_frames import block, request, sent_request

API_VERSIONS = 18


@pytest.mark.parametrize("versions", [(3, 4), (4, 3), (3, 3)])
def test_the_last_api_versions_request_shows_the_software(versions: tuple[int, int]) -> None:
    """A client may send it in two versions: they are decoded apart."""
    sent = []
    for number, version in enumerate(versions):
        body = b"\x09client-%d" % number + b"\x02" + b"1" + b"\0"  # name, version, no tagged field
        sent.append(sent_request(request(API_VERSIONS, version, number, body, flexible=True), 0))
    held_since, ended = np.full(1, LAST_TIME), np.zeros(1, np.bool_)
    frames = Correlator(TopicNames()).feed(block(*sent), 0, ended, held_since, last=True)
    table = ConnectionTable()
    table.add(1)
    connections = Connections(table)
    list(connections.learn(frames))
    assert connections.client_info["software_name"] == {0: "client-1"}

"""The two walkers agree on every frame of every capture."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from dissector import open_capture
from dissector.protocol import registry
from dissector.protocol.message import is_fallback
from dissector.protocol.notation import Direction, Layout
from tests.captures.recorded import SAME_KINDS
from tests.captures.truth import ledger
from tests.dissector.protocol.test_protocol_column_decoder import check

NAMES = sorted(name for name, each in ledger().items() if each.path.name not in SAME_KINDS)


def bodies(path: Path) -> dict[Layout, list[bytes]]:
    """The body of every message whose version is known, by layout."""
    by_layout: dict[Layout, list[bytes]] = defaultdict(list)
    for exchange in open_capture(path).exchanges():
        frames = {
            Direction.REQUEST: exchange.request_frame,
            Direction.RESPONSE: exchange.response_frame,
        }
        for direction, frame in frames.items():
            explanation = exchange.explain(direction)
            if frame is None or explanation is None or exchange.api_version is None:
                continue
            header = [event for event in explanation.events if event.path.startswith("header.")]
            if not header or exchange.api_key not in registry.apis():
                continue
            version = exchange.api_version
            if direction == Direction.RESPONSE and exchange.api_key == 18 and is_fallback(frame):
                version = 0
            if version in registry.versions(exchange.api_key):
                layout = registry.layout(exchange.api_key, direction, version)
                start = max(event.offset + event.length for event in header)
                by_layout[layout].append(frame[start:])
    return by_layout


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NAMES)
def test_walkers_agree_on_every_frame(name: str) -> None:
    for layout, frames in bodies(ledger()[name].path).items():
        check(layout, frames)

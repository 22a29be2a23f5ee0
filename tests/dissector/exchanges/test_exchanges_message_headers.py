"""Headers: the version of each, as the definitions have it."""

from __future__ import annotations

import numpy as np

from dissector.exchanges.message_headers import UNKNOWN, VERSIONS, header_versions
from dissector.protocol import registry
from dissector.protocol.notation import Direction


def test_header_versions_are_those_of_the_definitions() -> None:
    known = [(key, version) for key in registry.apis() for version in registry.versions(key)]
    assert max(version for _, version in known) < VERSIONS
    others = [(key, registry.versions(key)[-1] + 1) for key in registry.apis()]
    others += [(-1, 0), (-(2**15), 0), (2**15 - 1, 0), (3, -1), (0, VERSIONS), (0, 2**15 - 1)]
    api_key, version = np.array(known + others).T
    for direction in Direction:
        expected = [registry.layout(key, direction, each).header_version for key, each in known]
        actual = header_versions(direction, api_key, version)
        assert actual.tolist() == expected + [UNKNOWN] * len(others)

"""The full text of a field, as the screen shows it."""

from __future__ import annotations

import pytest

from analysis.browse.message_pane import FULL_TEXT, _full_text
from dissector.embedded.contents import field_event


@pytest.mark.parametrize("depth", [10, 900, FULL_TEXT // 2])
def test_nested_json_is_indented_or_stays(depth: int) -> None:
    lines = _full_text(field_event("value", "[" * depth + "]" * depth))
    shown = [line.plain.strip() for line in lines]
    assert shown in ([*"[" * (depth - 1), "[]", *"]" * (depth - 1)], ["[" * depth + "]" * depth])

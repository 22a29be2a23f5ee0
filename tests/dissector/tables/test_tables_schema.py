"""The declared columns and the recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from dissector import open_capture
from dissector.tables import TABLES
from tests.captures.recorded import SMALLER
from tools.generate_docs import filled_by


@pytest.mark.parametrize("path", SMALLER, ids=lambda path: path.name.partition(".")[0])
def test_a_column_is_null_only_as_its_documentation_states(path: Path) -> None:
    """A column with APIs in `filled by` is null in rows of others."""
    documented = {
        (name, column.name)
        for name, table in TABLES.items() for column in table.columns
        if "null" in column.meaning or any(filled_by(name, column.name).values())
    }  # fmt: skip
    tables = open_capture(path).tables(tuple(TABLES))
    null = {
        (name, column)
        for name, table in tables.items() for column in table.column_names
        if table[column].null_count
    }  # fmt: skip
    assert null <= documented

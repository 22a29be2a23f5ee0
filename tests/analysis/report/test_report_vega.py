"""The charts' script is bundled once, and read from the cache while the file is intact."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.report.vega import vega

SCRIPT = "let ends = '</script>'; window.vegaEmbed = 1;"


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The calls of vl-convert, with a separate cache."""
    calls: list[str] = []

    def bundle(snippet: str) -> str:
        calls.append(snippet)
        return SCRIPT

    monkeypatch.setitem(sys.modules, "vl_convert", SimpleNamespace(javascript_bundle=bundle))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    vega.cache_clear()
    yield calls
    vega.cache_clear()


def reload() -> str:
    """Load the script as another process would."""
    vega.cache_clear()
    return vega()


def test_the_script_is_bundled_once(bundled: list[str]) -> None:
    first = vega()
    assert "</script" not in first
    assert reload() == first
    assert len(bundled) == 1


def test_a_damaged_file_is_not_used(bundled: list[str], tmp_path: Path) -> None:
    first = vega()
    (file,) = (tmp_path / "cache" / "kafka-dissector").iterdir()
    for damaged in (b"", first[:-1].encode(), b"\xff"):
        file.write_bytes(damaged)
        assert reload() == first
    assert len(bundled) == 4
    assert reload() == first
    assert len(bundled) == 4


def test_the_cache_is_optional(
    bundled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # a file cannot contain a folder
    assert vega() == reload()
    assert len(bundled) == 2

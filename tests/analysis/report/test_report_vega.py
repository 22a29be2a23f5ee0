"""The script that draws is put together once, and taken from the cache while it is whole there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.report.vega import vega

SCRIPT = "let ends = '</script>'; window.vegaEmbed = 1;"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What vl-convert was asked for, with a cache of its own."""
    asked: list[str] = []

    def bundle(snippet: str) -> str:
        asked.append(snippet)
        return SCRIPT

    monkeypatch.setitem(sys.modules, "vl_convert", SimpleNamespace(javascript_bundle=bundle))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    vega.cache_clear()
    yield asked
    vega.cache_clear()


def again() -> str:
    """As another process would ask."""
    vega.cache_clear()
    return vega()


def test_it_is_put_together_once(built: list[str]) -> None:
    first = vega()
    assert "</script" not in first
    assert again() == first
    assert len(built) == 1


def test_what_is_not_whole_is_not_taken(built: list[str], tmp_path: Path) -> None:
    first = vega()
    (file,) = (tmp_path / "cache" / "kafka-dissector").iterdir()
    for damaged in (b"", first[:-1].encode(), b"\xff"):
        file.write_bytes(damaged)
        assert again() == first
    assert len(built) == 4
    assert again() == first
    assert len(built) == 4


def test_no_cache_is_needed(
    built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no folder can be made in a file
    assert vega() == again()
    assert len(built) == 2

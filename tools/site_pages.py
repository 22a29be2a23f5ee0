"""A hook of mkdocs: ``folder/*.md`` in the navigation stands for all pages of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> None:
    config["nav"] = [_expanded(entry, Path(config["docs_dir"])) for entry in config["nav"]]


def _expanded(entry: Any, docs: Path) -> Any:
    if isinstance(entry, str):
        return entry
    return {title: _pages(pages, docs) for title, pages in entry.items()}


def _pages(pages: Any, docs: Path) -> Any:
    if isinstance(pages, str):
        return [path.relative_to(docs).as_posix() for path in sorted(docs.glob(pages))]
    return [_expanded(page, docs) for page in pages]

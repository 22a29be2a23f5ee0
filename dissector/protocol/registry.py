"""Looks up APIs, versions, structures and error codes by number or name.

Pages are package data, read through importlib.resources so that they are found inside a zip file
too. File names list the APIs. A page is read and parsed on first use, and cached. Nothing here
depends on the wire format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from dissector.arrays import value
from dissector.errors import DefinitionError, DissectorError, UnknownVersion, did_you_mean
from dissector.protocol.notation import Api, Direction, Layout, Page, Structure, StructureLayout
from dissector.protocol.parser import parse_api, parse_page, parse_structures

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_CODE = re.compile(r"-?\d+")
_FLAGS: tuple[list[str], ...] = ([], ["retriable"])


@value
class ErrorCode:
    """One of Kafka's error codes."""

    code: int
    name: str
    retriable: bool
    """Whether the same request may succeed if it is sent again."""


def _definitions() -> Traversable:
    folder = Path(__file__).with_name("definitions")
    if folder.is_dir():
        return folder
    from importlib.resources import files  # takes longer to import than all pages to read

    return files("dissector.protocol").joinpath("definitions")


@cache
def _pages() -> Mapping[int, tuple[str, Traversable]]:
    """File name and file of each API's page, by key."""
    pages = {}
    for file in _definitions().iterdir():
        key, _, name = file.name.partition("_")
        if key.isdecimal() and name.endswith(".txt"):
            pages[int(key)] = (file.name, file)
    return dict(sorted(pages.items()))


@cache
def apis() -> Mapping[int, str]:
    """Names of all APIs by key, in order of key."""
    return MappingProxyType(
        {key: name.partition("_")[2][: -len(".txt")] for key, (name, _) in _pages().items()}
    )


def api_name(api_key: int) -> str | None:
    """The name of an API; None for an unknown key."""
    return apis().get(api_key)


def find_api(text: str) -> str:
    """The name of an API by its name, in any case, or by its key.

    Raises DissectorError for an API that does not exist.
    """
    names = {word: name for key, name in apis().items() for word in (str(key), name.lower())}
    if text.lower() in names:
        return names[text.lower()]
    raise DissectorError(f"no API is called {text}{did_you_mean(text, apis().values())}")


@cache
def api(api_key: int) -> Api:
    """An API without its fields. Raises UnknownVersion for an unknown key."""
    name, text = _text(api_key)
    return parse_api(text, name)


@cache
def all_apis() -> tuple[Api, ...]:
    """All APIs without their fields, in order of key."""
    return tuple(api(key) for key in apis())


def read_files() -> None:
    """Read all files, so that later calls need no right to read them."""
    all_apis()
    all_structures()
    error_codes()
    open_configs()


def versions(api_key: int) -> range:
    """The versions of an API, in both directions. Raises UnknownVersion for an unknown key."""
    return api(api_key).versions


@cache
def layout(api_key: int, direction: Direction, version: int) -> Layout:
    """One version of one direction. Raises UnknownVersion, which names the newest version."""
    known = versions(api_key)
    if version not in known:
        raise UnknownVersion(
            f"unknown version {version} of {apis()[api_key]} (newest known: {known[-1]})",
            offset=2,
            path="header.api_version",
        )
    return page(api_key).layout(direction, version)


@cache
def page(api_key: int) -> Page:
    """The page of an API, in all versions. Raises UnknownVersion for an unknown key."""
    name, text = _text(api_key)
    parsed = parse_page(text, name)
    if (parsed.api.key, parsed.api.name) != (api_key, apis()[api_key]):
        raise DefinitionError(
            "the name of the file does not match the API on the page", page=name, line=1
        )
    return parsed


@cache
def _text(api_key: int) -> tuple[str, str]:
    if api_key not in _pages():
        newest = max(_pages())
        raise UnknownVersion(
            f"unknown API key {api_key} (largest known: {newest})",
            offset=0,
            path="header.api_key",
        )
    name, file = _pages()[api_key]
    return name, file.read_text(encoding="utf-8")


@cache
def structures(page: str) -> Mapping[str, Structure]:
    """The structures of one page, such as ``cluster_metadata``, by name, in the page's order."""
    file = _definitions() / "structures" / f"{page}.txt"
    return {each.name: each for each in parse_structures(file.read_text(encoding="utf-8"), page)}


def structure(name: str) -> Structure:
    """The structure with this name, on any page."""
    return all_structures()[name]


@cache
def structure_layout(name: str, version: int) -> StructureLayout:
    """One version of a structure. Raises UnknownVersion, which names the newest version."""
    known = structure(name).versions
    if version not in known:
        raise UnknownVersion(
            f"unknown version {version} of {name} (newest known: {known[-1]})", offset=0
        )
    return structure(name).layout(version)


@cache
def all_structures() -> Mapping[str, Structure]:
    """The structures of all pages, by name."""
    pages = sorted(file.name for file in (_definitions() / "structures").iterdir())
    return {
        name: definition
        for page in pages
        for name, definition in structures(page.removesuffix(".txt")).items()
    }


@cache
def error_codes() -> Mapping[int, ErrorCode]:
    """All error codes, by number."""
    page = "errors.txt"
    codes = {}
    text = _definitions().joinpath(page).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) not in (2, 3) or not _CODE.fullmatch(words[0]) or words[2:] not in _FLAGS:
            raise DefinitionError(
                "expected CODE NAME, or CODE NAME retriable", page=page, line=number
            )
        code = int(words[0])
        codes[code] = ErrorCode(code, words[1], len(words) == 3)
    return MappingProxyType(codes)


@cache
def open_configs() -> frozenset[str]:
    """Names of configurations whose values Kafka does not treat as secret."""
    text = _definitions().joinpath("configs.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def error_name(code: int) -> str | None:
    """The name of an error code, NONE for 0; None for an unknown code."""
    error = error_codes().get(code)
    return error.name if error else None


def is_retriable(code: int) -> bool | None:
    """Whether sending the request again may succeed; None for an unknown code."""
    error = error_codes().get(code)
    return error.retriable if error else None

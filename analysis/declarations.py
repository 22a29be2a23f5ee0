"""Declarations of the modules of a package, one per module: answers, and rules of `diagnose`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from pkgutil import iter_modules
from typing import TypeVar

T = TypeVar("T")


class Declarations(Mapping[str, T]):
    """Declarations by the name of their module, ordered by `place`. Modules are imported when they
    are needed."""

    def __init__(self, package: str, path: Iterable[str], declared: Mapping[str, T]) -> None:
        """`declared`: each module adds its declaration to it when it is imported."""
        self._package = package
        self._path = path
        self._declared = declared

    @cached_property
    def names(self) -> frozenset[str]:
        """All names; imports none of the modules."""
        return frozenset(module.name for module in iter_modules(self._path))

    def __repr__(self) -> str:
        return f"<{self._package}: {', '.join(self)}>"

    def __getitem__(self, name: str) -> T:
        if name not in self.names:
            raise KeyError(name)
        import_module(f"{self._package}.{name}")
        return self._declared[name]

    def __iter__(self) -> Iterator[str]:
        place = attrgetter("place")
        return iter(sorted(self.names, key=lambda name: place(self[name])))

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

"""All rules by name, and thresholds that the user sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Final

from analysis.diagnosis import rules
from analysis.diagnosis.rule import DECLARED, Rule


class _Rules(Mapping[str, Rule]):
    """The rules by name, in order of `Rule.place`; modules are imported when needed."""

    def __getitem__(self, name: str) -> Rule:
        if name not in _names():
            raise KeyError(name)
        import_module(f"{rules.__name__}.{name}")
        return DECLARED[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(_names(), key=lambda name: self[name].place))

    def __len__(self) -> int:
        return len(_names())


@cache
def _names() -> frozenset[str]:
    return frozenset(module.name for module in iter_modules(rules.__path__))


RULES: Final[Mapping[str, Rule]] = MappingProxyType(_Rules())
"""Every rule by name."""


def limits(given: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The thresholds of each rule, with those of the user in place of the defaults.

    A key is ``RULE.THRESHOLD``, or ``RULE`` for its main threshold. Raises DissectorError for an
    unknown one, and for a value that is not a number of at least 0.
    """
    from dissector.arguments import number, text
    from dissector.errors import DissectorError, did_you_mean

    if not isinstance(given, Mapping):
        raise DissectorError(f"thresholds must be a dict of numbers, not {given!r}")
    values = {name: rule.limits for name, rule in RULES.items()}
    for key, value in given.items():
        name, _, threshold = text("a threshold", key).partition(".")
        if name not in values:
            raise DissectorError(
                f"there is no rule {name!r}; choose from: {', '.join(values)}"
                f"{did_you_mean(name, values)}"
            )
        if not values[name]:
            raise DissectorError(f"the rule {name} has no threshold")
        threshold = threshold or next(iter(values[name]))
        if threshold not in values[name]:
            raise DissectorError(
                f"the rule {name} has no threshold {threshold!r}; choose from: "
                f"{', '.join(values[name])}{did_you_mean(threshold, values[name])}"
            )
        values[name][threshold] = number(key, value, 0)
    return values

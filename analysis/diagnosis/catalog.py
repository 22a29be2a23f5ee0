"""All rules by name, and thresholds that the user sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from analysis.declarations import Declarations
from analysis.diagnosis import rules
from analysis.diagnosis.rule import DECLARED

RULES: Final = Declarations(rules.__name__, rules.__path__, DECLARED)
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

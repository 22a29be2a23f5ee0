"""Types of options. An error suggests the most similar value."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable


class Integer(click.IntRange):
    """An integer of a range; errors call it so."""

    name = "integer"


class Number(click.FloatRange):
    """A number of a range, not nan; errors call it so."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid number.", param, ctx)
        return number


class Choice(click.Choice[str]):
    """A value of a fixed set."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx)
        return with_suggestion(message, value, self.choices)


def with_suggestion(message: str, name: object, names: Iterable[str]) -> str:
    """The message about a wrong name, and the most similar name, if any."""
    from dissector.errors import did_you_mean

    return f"{message.rstrip('.')}{did_you_mean(name, names) or '.'}"

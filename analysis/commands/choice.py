"""Types of options, and errors about their values, which suggest the most similar value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from dissector.errors import DissectorError, did_you_mean


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
    return f"{message.rstrip('.')}{did_you_mean(name, names) or '.'}"


@contextmanager
def usage_errors() -> Iterator[None]:
    """A context in which a wrong value of an option (DissectorError) is a usage error."""
    try:
        yield
    except DissectorError as error:
        raise click.UsageError(str(error)) from error

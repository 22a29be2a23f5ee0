"""Types of options, errors about their values, and their sections in ``--help``.

An error suggests the most similar value. The options of a command come before those that commands
share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dissector.errors import DissectorError, did_you_mean

if TYPE_CHECKING:
    from dissector.embedded.records import Decode

_OWN: Final = "Options"
_FILTERS: Final = "Filters"
"""Options that select exchanges."""
_OUTPUT: Final = "Output"
"""How and where results are written."""
_INPUT: Final = "Input and display"
"""How captures are read and presented."""
_SECTIONS: Final = (_OWN, _FILTERS, _OUTPUT, _INPUT)


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


class SharedOption(click.Option):
    """An option in a section."""

    def __init__(self, *names: Any, section: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.section = section


class Command(click.Command):
    """A command whose options have sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records: dict[str, list[tuple[str, str]]] = {section: [] for section in _SECTIONS}
        for param in self.get_params(ctx):
            is_help = param is self.get_help_option(ctx)
            section = _SECTIONS[-1] if is_help else getattr(param, "section", _OWN)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                records[section].append(record)
        for section, options in records.items():
            if options:
                with formatter.section(section):
                    formatter.write_dl(options)


def named_command(name: str, **settings: Any) -> Callable[[Callable[..., Any]], Command]:
    """``click.command`` with sections."""
    return click.command(name, cls=Command, **settings)


def with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A decorator that adds options to a command, in this order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def words(_: click.Context, __: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """``--by client_id,api`` is ``--by client_id --by api``."""
    names = tuple(word.strip() for text in given for word in text.split(","))
    if "" in names:
        raise click.BadParameter("a name is empty")
    return names


def _only_key_log(_: click.Context, __: click.Parameter, given: Sequence[Path]) -> Path | None:
    """The value of ``--keylog``: a second file would otherwise replace the first one."""
    if len(given) > 1:
        raise click.BadParameter(
            "it takes one file. Concatenate several: cat keys-*.log > keys.log"
        )
    return given[0] if given else None


filter_option = partial(click.option, cls=SharedOption, section=_FILTERS)
output_option = partial(click.option, cls=SharedOption, section=_OUTPUT)
input_option = partial(click.option, cls=SharedOption, section=_INPUT)

key_log_options: Final[dict[str, Any]] = {
    "type": click.Path(exists=True, dir_okay=False, path_type=Path),
    "multiple": True, "callback": _only_key_log, "metavar": "FILE",
}  # fmt: skip
"""Settings of the option ``--keylog``."""

on_secrets = output_option(
    "--show-secrets", is_flag=True, help="Show credentials and configuration values."
)
"""A decorator of commands whose output may contain secrets."""

on_overwrite = output_option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
"""A decorator of commands that write a file."""

on_pager = output_option(
    "--no-pager", is_flag=True, help="Print long output directly, not in a pager (PAGER or less)."
)
"""A decorator of commands that print text."""

on_schema_registry = click.option(
    "--schema-registry", "registry", metavar="FOLDER|URL",
    help="Decode keys and values in Confluent's wire format with the schemas of a registry, or of "
    "a folder with files such as 42.avsc (extra schemas).",
)  # fmt: skip
"""A decorator; the parameter is ``registry``."""


def decoder(registry: str | None) -> Decode | None:
    """The decoder of the option's value. Raises DissectorError for an invalid one."""
    if registry is None:
        return None
    from analysis.schemas.registry import SchemaRegistry

    return SchemaRegistry(registry)

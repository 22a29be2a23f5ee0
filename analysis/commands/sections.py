"""Sections of ``--help``: the options of a command come before those that commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import click

_OWN: Final = "Options"


_FILTERS: Final = "Filters"
"""Options that select exchanges."""
_OUTPUT: Final = "Output"
"""How and where results are written."""
_INPUT: Final = "Input and display"
"""How captures are read and presented."""
_SECTIONS: Final = (_OWN, _FILTERS, _OUTPUT, _INPUT)


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


filter_option = partial(click.option, cls=SharedOption, section=_FILTERS)
output_option = partial(click.option, cls=SharedOption, section=_OUTPUT)
input_option = partial(click.option, cls=SharedOption, section=_INPUT)

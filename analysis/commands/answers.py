"""A command for each answer, made from its declaration."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from analysis.answers import Answer, Option
from analysis.commands.common import Input, notify, on_capture
from analysis.commands.coverage import COVERAGE, Coverage, coverage_of
from analysis.commands.options import (
    Choice,
    Integer,
    named_command,
    usage_errors,
    with_options,
    words,
)
from analysis.commands.output import Output, on_answer_output

if TYPE_CHECKING:
    import duckdb

QUALITY: Final = "quality"
"""The answer that lists what could not be read."""

_DEFAULT: Final = ParameterSource.DEFAULT


def command_of(answer: Answer) -> click.Command:
    """The command that writes the rows of an answer."""

    def run(source: Input, output: Output, **options: Any) -> None:
        _run(answer, source, output, options)

    with_own = with_options(*map(_option, answer.options))
    made = on_capture(with_own(on_answer_output(run)))
    return named_command(answer.name, help=answer.question, short_help=answer.question)(made)


def _option(option: Option) -> Any:
    default, meaning = option.default, f"{option.meaning}."
    settings: dict[str, Any] = {"default": default, "show_default": True}
    if isinstance(default, tuple):
        settings = {"default": default, "multiple": True, "callback": words, "metavar": "COLUMN"}
        if default:
            meaning += f" May be repeated.  [default: {', '.join(default)}]"
    elif option.choices:
        settings |= {"type": Choice(option.choices)}
    elif option.read:
        settings = {"type": click.Path(exists=True, dir_okay=False), "metavar": "FILE"}
    else:
        settings |= {"type": Integer(0), "metavar": "N"}
    return click.option(option.flag, option.name, help=meaning, **settings)


def _run(answer: Answer, source: Input, output: Output, options: dict[str, Any]) -> None:
    output.check(source.captures)
    from analysis.sql.query import no_tables

    context = click.get_current_context()
    given = {n: v for n, v in options.items() if context.get_parameter_source(n) != _DEFAULT}
    if fault := answer.without_effect(given, as_flags=True):
        raise click.UsageError(fault)
    function, names = partial(answer.arrow, **given), answer.tables_for(given)
    with usage_errors():  # before a large capture is read
        columns = function(no_tables(names)).column_names
    output.check_columns(columns)
    with source.stored(
        names, show_progress=not output.is_on_terminal,
        shows_brokers=output.shows_brokers(columns), also=(COVERAGE,),
    ) as sql:  # fmt: skip
        rows = function(sql)
        if len(rows):
            if answer.lists_problems and answer.name != QUALITY and source.filter is None:
                _warn_of_coverage(source, coverage_of(sql))
        else:
            notify(_reason(answer, source, sql, given))
    if len(rows) or not output.is_for_people or output.file:
        by = options.get("by", ())
        output.write(rows.to_batches(), rows.schema, answer.essential, answer.useful, by)


def _reason(
    answer: Answer, source: Input, sql: duckdb.DuckDBPyConnection, given: dict[str, Any]
) -> str:
    """The sentence that explains why an answer has no rows."""
    if not source.filter and "exchanges" in answer.tables_for(given):
        is_empty = not sql.sql("from exchanges limit 1").fetchall()
        # Log segments may have flaws.
        if is_empty and not (answer.name == QUALITY and source.has_only_segments):
            return source.nothing
    return source.no_rows(answer.rows_with(given), coverage_of(sql))


def _warn_of_coverage(source: Input, coverage: Coverage) -> None:
    """Warn that there may be more problems: a client that is not listed may have one."""
    if not coverage.is_complete:
        notify(
            f"Warning: only {coverage.read:,} of {coverage.payload:,} connections could be read; "
            f"for the others, see {source.again('quality')}"
        )

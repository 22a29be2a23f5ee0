"""Answers: what an operator asks of a capture, one module and one function per question.

An answer is a pure function from tables to a DataFrame: ``throttle(tables, by=("client_id",))``.
`tables` are a capture, of which it reads what it needs: its paths, or an open `Capture`. Or they
are those of `analysis.load` or `Capture.tables`, a connection to DuckDB with tables on disk
(`analysis.connect`, `analysis.sql.stored`), or DataFrames of Spark: then the result is a DataFrame
of Spark, too.
The result has the declared columns and dtypes for every capture. If the capture contains nothing
that the question is about, the result has no rows.

Every module of this package is one answer. The decorator `answer` declares it: question, tables,
options, columns; the function below it has the SQL, and returns an Arrow table. `ANSWERS`, the
command, the view in SQL, the page in the documentation and the section of the report follow from
the declaration.

The module of an answer imports nothing heavy at its top: ``--help`` imports all of them. NumPy,
Arrow, pandas and DuckDB are imported when an answer is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from inspect import cleandoc, signature
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, cast

from analysis.columns import Column, resolved
from analysis.declarations import Declarations
from analysis.sql.expressions import column_names
from dissector.arguments import choice, integer
from dissector.arrays import value
from dissector.errors import DissectorError

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

    from dissector.capture import Capture, Paths
    from dissector.tables import TableColumn

P = ParamSpec("P")
ArrowTable: TypeAlias = "pa.Table"
Tables: TypeAlias = (
    "Paths | Capture | Mapping[str, pd.DataFrame | pa.Table] | duckdb.DuckDBPyConnection"
)
"""A capture, or what was made of it."""
Value: TypeAlias = tuple[str, ...] | int | float | str


@value
class Option:
    """A keyword of an answer, and an option of its command."""

    name: str
    meaning: str
    """An imperative sentence without a full stop."""
    choices: tuple[str, ...] = ()
    """The allowed values; empty: the default and those of variants, or any of its type."""
    read: Callable[[Any], Any] | None = None
    """For an option whose value is the name of a file: it returns the content, even if given the
    content. Spark sends the content to its tasks."""
    needs: tuple[str, int | str] | None = None
    """The option that must have this value, or else this option has no effect."""
    default: Value = ()
    """The default in the signature of the function; a tuple: the option may be repeated."""

    @property
    def flag(self) -> str:
        """The option of the command."""
        return f"--{self.name.replace('_', '-')}"

    def checked(self, given: Any) -> Any:
        """A value that a user passes, as the function takes it.

        Raises DissectorError for a value that this option does not allow.
        """
        if self.read:
            return self.read(given)
        if self.choices:
            return choice(self.name, given, self.choices)
        if isinstance(self.default, tuple):
            return column_names(given)
        return integer(self.name, given, 0)


def grouped_by(columns: str, needs: tuple[str, int | str] | None = None) -> Option:
    """The option `by`. `columns`: those that it allows, in words."""
    return Option("by", f"Group by this column: {columns}", needs=needs)


@value
class Variant:
    """Columns that the result has instead if an option is given."""

    option: str
    value: str
    """The value that selects this variant; ``N``: any number except 0."""
    columns: tuple[Column, ...]
    tables: tuple[str, ...] = ()
    """Names of tables that it needs besides those of the answer."""
    rows: str = ""
    """What the rows are, in the plural; empty: those of the answer."""

    def is_selected(self, options: Mapping[str, Any]) -> bool:
        given = options[self.option]
        return bool(given) if self.value == "N" else bool(given == self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A question, and the function that answers it."""

    name: str
    """Name of the command, the function, and the module in this package."""
    function: Callable[..., pd.DataFrame] = field(repr=False)
    """From tables and options to a DataFrame."""
    compute: Callable[..., pa.Table] = field(repr=False)
    """The decorated function: from a connection with its tables, and options, to rows."""
    question: str
    place: int
    """Answers are listed in this order."""
    tables: tuple[str, ...]
    """Names of the tables that the function needs."""
    options: tuple[Option, ...]
    rows: str
    """What the rows are, in the plural."""
    declared_columns: tuple[Column, ...] = field(repr=False)
    variants: tuple[Variant, ...] = field(repr=False)
    essential: tuple[str, ...]
    """Columns that answer the question, besides those that rows are grouped by, the most important
    first. A narrow terminal hides all other columns before these."""
    useful: tuple[str, ...]
    """Columns that a terminal shows next if it has room."""
    lists_problems: bool
    """Rows are problems, for example errors."""
    former_names: tuple[str, ...]
    """Names that the command had before; they still work."""

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """Columns of the result, after those that rows are grouped by."""
        return resolved(self.declared_columns)

    @property
    def other_columns(self) -> Mapping[str, tuple[TableColumn, ...]]:
        """Columns of the variants, by the option that selects them."""
        return {f"--{v.option} {v.value}": resolved(v.columns) for v in self.variants}

    def data_frame(self, *arguments: Any, **options: Any) -> pd.DataFrame:
        """What `function` returns for these arguments."""
        from analysis.frames import frame

        tables, given = self._bound(*arguments, **options)
        if isinstance(tables, Mapping) and _are_on_spark(tables):
            from analysis.spark.answers import answer

            return cast("pd.DataFrame", answer(self, tables, **given))
        return frame(self._rows(tables, given))

    def arrow(self, *arguments: Any, **options: Any) -> pa.Table:
        """The result as an Arrow table, except from DataFrames of Spark."""
        return self._rows(*self._bound(*arguments, **options))

    def _bound(self, *arguments: Any, **options: Any) -> tuple[Tables, dict[str, Any]]:
        """The tables, and the checked options."""
        call = signature(self.compute)
        given = call.bind(*arguments, **options).arguments  # a wrong name is a TypeError
        tables: Tables = given.pop("tables")
        named = {option.name: option for option in self.options}
        options = {name: named[name].checked(value) for name, value in given.items()}
        if fault := self.without_effect(options):
            raise DissectorError(fault)
        return tables, options

    def _rows(self, tables: Tables, options: dict[str, Any]) -> pa.Table:
        from analysis.sql.query import connected, shaped

        with connected(tables, self.tables_for(options)) as connection:
            rows = self.compute(connection, **options)
        given = self.with_defaults(options)
        for variant in self.variants:
            if variant.is_selected(given):
                return shaped(rows, resolved(variant.columns))
        return shaped(rows, self.columns, given.get("by", ()))

    def rows_with(self, options: Mapping[str, Any]) -> str:
        """What the rows are with these options, in the plural."""
        given = self.with_defaults(options)
        return next((v.rows for v in self.variants if v.rows and v.is_selected(given)), self.rows)

    def with_defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all options."""
        return {option.name: option.default for option in self.options} | dict(options)

    def without_effect(self, options: Mapping[str, Any], *, as_flags: bool = False) -> str:
        """The sentence that one of these options has no effect; empty if all have one."""
        given = self.with_defaults(options)
        named = {option.name: option for option in self.options}
        for name in options:
            other, value = named[name].needs or (name, given[name])
            if given[other] != value:
                first, second = (named[each].flag if as_flags else each for each in (name, other))
                if not value:
                    return f"pass either {first} or {second}"
                return f"{first} needs {second}" + (f" {value}" if as_flags else f"={value!r}")
        return ""

    def tables_for(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Names of the tables that the function needs with these options."""
        given = self.with_defaults(options)
        added = (name for v in self.variants if v.is_selected(given) for name in v.tables)
        return tuple(dict.fromkeys((*self.tables, *added)))


def answer(
    *, question: str, place: int, tables: Sequence[str], rows: str, columns: Sequence[Column],
    essential: str, useful: str = "", options: Sequence[Option] = (),
    variants: Sequence[Variant] = (), lists_problems: bool = False,
    former_names: Sequence[str] = (),
) -> Callable[[Callable[P, pa.Table]], Callable[P, pd.DataFrame]]:  # fmt: skip
    """Declare an answer; the parameters are the attributes of `Answer`.

    `essential` and `useful`: names, separated by spaces. The decorated function takes tables, which
    it may only `select` from, and its options as keywords. It returns rows with at least the
    declared columns, in their order.
    """

    def declare(function: Callable[P, pa.Table]) -> Callable[P, pd.DataFrame]:
        call = signature(function)
        _, *keywords = call.parameters.values()
        defaults = {keyword.name: keyword.default for keyword in keywords}

        @wraps(function)
        def answered(*arguments: P.args, **options: P.kwargs) -> pd.DataFrame:
            return declared.data_frame(*arguments, **options)

        shown = call.replace(return_annotation="pd.DataFrame")
        answered.__signature__ = shown  # type: ignore[attr-defined] # help() shows it

        declared = Answer(
            name=function.__name__,
            function=answered,
            compute=function,
            question=question,
            place=place,
            tables=tuple(tables),
            options=tuple(
                _completed(option, defaults[option.name], variants) for option in options
            ),
            rows=rows,
            declared_columns=tuple(columns),
            variants=tuple(variants),
            essential=tuple(essential.split()),
            useful=tuple(useful.split()),
            lists_problems=lists_problems,
            former_names=tuple(former_names),
        )
        answered.__doc__ = _documented(declared, cleandoc(function.__doc__ or ""))
        _DECLARED[declared.name] = declared
        return answered

    return declare


def _completed(option: Option, default: Value, variants: Sequence[Variant]) -> Option:
    """The option with its default, and with the choices that select variants."""
    chosen = [v.value for v in variants if v.option == option.name and isinstance(default, str)]
    choices = (str(default), *chosen) if chosen else option.choices
    return replace(option, default=default, choices=choices)


def _documented(declared: Answer, text: str) -> str:
    """The docstring of the function of an answer. `text`: what the rows are, and their order."""
    columns = ", ".join(column.name for column in declared.declared_columns)
    has_groups = any(option.name == "by" for option in declared.options)
    variants = (
        f"Columns with {variant.option}={variant.value}: "
        + ", ".join(column.name for column in variant.columns)
        for variant in declared.variants
    )
    paragraphs = (
        f"`tables`: paths of captures, or the tables {', '.join(declared.tables)}.",
        *map(_parameter, declared.options),
        f"Columns{', after those of `by`' if has_groups else ''}: {columns}",
        *variants,
        f'`kafka_dissector.ANSWERS["{declared.name}"].columns` has their types and meanings.',
        "Raises DissectorError if a table is missing, or for a wrong value of a parameter.",
    )
    return "\n\n".join([text, declared.question, *(fill(each, 92) for each in paragraphs)])


def _parameter(option: Option) -> str:
    """A sentence about an option as a parameter."""
    text = f"`{option.name}`: {option.meaning}."
    if option.choices:
        text += f" One of {', '.join(map(repr, option.choices))}."
    elif option.name == "by":
        text += " A name, or a list of names."
    defaults = option.default if isinstance(option.default, tuple) else (option.default,)
    return f"{text} Default: {', '.join(map(repr, defaults))}." if any(defaults) else text


def select(tables: Tables, query: str) -> pa.Table:
    """The rows of a query in SQL; for the functions of answers."""
    from analysis.sql.query import select

    return select(tables, query)


def _are_on_spark(tables: Mapping[str, object]) -> bool:
    """Whether tables are DataFrames of Spark; imports nothing."""
    return any(type(table).__module__.startswith("pyspark.") for table in tables.values())


_DECLARED: Final[dict[str, Answer]] = {}

ANSWERS: Final = Declarations(__name__, __path__, _DECLARED)
"""Every answer by name."""

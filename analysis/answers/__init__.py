"""The answers: what an operator asks of a capture, one module and one public function a question.

An answer is a pure function from tables to a DataFrame: ``throttle(tables, by=("client_id",))``,
where `tables` is what `analysis.load` gives, or has them on disk (`asking`, `analysis.stored`). Its
module has its name, and declares in `COLUMNS` what it returns: name, type, unit and meaning of each
column, in order; the result has these columns and dtypes whatever is in the capture, and where
nothing is, it has no rows.

`ANSWERS` is what the command line, the report, the notebooks and the documentation go through. It
knows what each answer asks, needs and takes, and imports nothing heavy: pandas and DuckDB come with
the first `Answer.function`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import pandas as pd

    from dissector.tables import TableColumn

__all__ = ["ANSWERS", "Answer", "Option"]

Value: TypeAlias = tuple[str, ...] | int | float | str


@dataclass(frozen=True, slots=True)
class Option:
    """A keyword that an answer takes, and an option of its command."""

    name: str
    default: Value
    """Its type is the option's; a tuple of texts may be given several times."""
    meaning: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One question, and where its answer is found."""

    name: str
    """Of the command, the function, and the module in this package."""
    question: str
    tables: tuple[str, ...]
    """Names of the tables that it needs."""
    options: tuple[Option, ...] = ()

    @property
    def function(self) -> Callable[..., pd.DataFrame]:
        """The answer itself: tables and options to rows."""
        function: Callable[..., pd.DataFrame] = getattr(self._module, self.name)
        return function

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """What it returns; columns that are grouped by come before these."""
        columns: tuple[TableColumn, ...] = self._module.COLUMNS
        return columns

    @property
    def other_columns(self) -> Mapping[str, tuple[TableColumn, ...]]:
        """What it returns instead, by the option that asks for it."""
        others: Mapping[str, tuple[TableColumn, ...]]
        others = getattr(self._module, "OTHER_COLUMNS", MappingProxyType({}))
        return others

    @property
    def _module(self) -> ModuleType:
        return import_module(f"{__name__}.{self.name}")


def _by(*columns: str, of: str = "exchanges, or broker, client, software, topic") -> Option:
    return Option("by", columns, f"A column to group by: any of {of}")


ANSWERS: Final[Mapping[str, Answer]] = MappingProxyType(
    {
        answer.name: answer
        for answer in (
            Answer(
                "latency",
                "How long do answers take, net of long polls, and which took longest?",
                ("exchanges", "batches", "connections"),
                (
                    _by("api"),
                    Option(
                        "slowest", 0, "Not groups, but so many requests: the slowest net of wait"
                    ),
                ),
            ),
            Answer(
                "throttle",
                "Who is throttled, by how much, by which broker, and is it honoured?",
                ("exchanges", "connections"),
                (_by("client_id", "broker", "api"),),
            ),
            Answer(
                "errors",
                "Which error codes came, for what topic and client, and since when?",
                ("errors", "exchanges", "connections"),
                (
                    _by(
                        "error",
                        "api",
                        "topic",
                        "client_id",
                        of="errors, or broker, client, software",
                    ),
                ),
            ),
            Answer(
                "unanswered",
                "Which requests were never answered, and why?",
                ("exchanges", "connections"),
                (_by("why", "api", "client_id", "broker"),),
            ),
            Answer(
                "topology",
                "Who produces to each topic, and who consumes from it?",
                ("partitions", "exchanges", "connections"),
            ),
            Answer(
                "versions",
                "Which clients speak versions that Kafka 4.0 removed, and what would break?",
                ("exchanges", "connections"),
            ),
            Answer(
                "groups",
                "When did each group rebalance, for how long, who set it off, and why?",
                ("memberships",),
            ),
            Answer(
                "lag",
                "How far behind is each group, by what it commits and fetches?",
                ("partitions", "exchanges", "transactions"),
                (Option("show", "last", "The last state, or all: each time that it changed"),),
            ),
            Answer(
                "delay",
                "How long from a record's produce request to the first fetch that brings it?",
                ("partitions",),
                (_by("topic", "partition", of="topic, partition, producer, reader"),),
            ),
            Answer(
                "producers",
                "Are idempotent and transactional producers healthy?",
                ("batches", "transactions"),
                (Option("show", "producers", "Rows for producers, transactions or gaps"),),
            ),
            Answer(
                "network",
                "Is it the network or the broker that takes the time?",
                ("connections", "exchanges", "batches"),
                (_by("client_id", "broker", of="connections, or client_id, broker, software"),),
            ),
            Answer(
                "leadership",
                "Which leaders moved, and what did clients go through?",
                ("topics", "errors", "partitions", "exchanges", "connections"),
                (Option("show", "moves", "Rows for moves or clients"),),
            ),
            Answer(
                "batching",
                "Do producers batch and compress well, and what acks do they ask for?",
                ("decompressed_batches", "exchanges", "connections"),
                (_by("client_id", "topic", of="batches, or broker, client, software"),),
            ),
            Answer(
                "audit",
                "Which offsets of which partition were written and read, and by whom?",
                ("partitions", "exchanges", "connections"),
            ),
            Answer(
                "trust",
                "How much of this capture could be read, and what is missing?",
                ("exchanges", "connections", "batches", "problems"),
            ),
        )
    }
)
"""Every answer by name."""

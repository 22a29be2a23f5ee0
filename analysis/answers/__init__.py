"""The answers: what an operator asks of a capture, one module and one public function a question.

An answer is a pure function from tables to a DataFrame: ``throttle(tables, by=("client_id",))``,
where `tables` is what `analysis.load` gives, or has them on disk (`analysis.sql.stored`). Its
module has its name, and declares in `COLUMNS` what it returns: name, type, unit and meaning of each
column, in order; the result has these columns and dtypes whatever is in the capture, and where
nothing is, it has no rows.

`ANSWERS` is what the command line, the report, the notebooks and the documentation go through. It
knows what each answer asks, needs and takes, and imports nothing heavy: pandas and DuckDB come with
the first `Answer.function`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    rows: str = field(kw_only=True)
    """What its rows are, in the plural."""
    essential: tuple[str, ...] = field(kw_only=True)
    """Columns that answer the question, beside those that are grouped by, the most important first.
    A narrow terminal hides all others before these."""
    useful: tuple[str, ...] = field(default=(), kw_only=True)
    """Columns that a terminal shows next, where it has room for them."""

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


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ANSWERS: Final[Mapping[str, Answer]] = MappingProxyType(
    {
        answer.name: answer
        for answer in (
            Answer(
                "latency",
                "How long do responses take, excluding long polls, and which took longest?",
                ("exchanges", "batches", "connections"),
                (
                    _by("api"),
                    Option(
                        "slowest",
                        0,
                        "List the N slowest requests, waiting excluded, instead of groups",
                    ),
                ),
                rows="latencies",
                essential=_names(
                    "count net_p50_ms net_p99_ms request_time client_id api topics net_ms "
                    "latency_ms"
                ),
                useful=_names("p50_ms p99_ms poll_ms behind_ms request_packet broker"),
            ),
            Answer(
                "throttle",
                "Who is throttled, by how much, by which broker, and is it honoured?",
                ("exchanges", "connections"),
                (_by("client_id", "broker", "api"),),
                rows="throttled responses",
                essential=_names("total_ms longest_ms responses"),
                useful=_names("honoured early held last_time"),
            ),
            Answer(
                "errors",
                "Which errors were returned, to which client, for which topic, since when?",
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
                rows="errors",
                essential=_names("count"),
                useful=_names("first_time last_time retriable message"),
            ),
            Answer(
                "unanswered",
                "Which requests were never answered, and why?",
                ("exchanges", "connections"),
                (_by("why", "api", "client_id", "broker"),),
                rows="unanswered requests",
                essential=_names("requests longest_ms"),
                useful=_names("first_packet first_time last_time"),
            ),
            Answer(
                "topology",
                "Who produces to each topic, and who consumes from it?",
                ("partitions", "exchanges", "connections"),
                rows="Produce and Fetch requests",
                essential=_names("topic action client_id groups records"),
                useful=_names("bytes client requests"),
            ),
            Answer(
                "versions",
                "Which clients speak versions that Kafka 4.0 removed, and what would break?",
                ("exchanges", "connections"),
                rows="requests in versions that Kafka 4.0 removed",
                essential=_names("client_id api api_version kept_since breaks"),
                useful=_names("software requests client"),
            ),
            Answer(
                "groups",
                "When did each group rebalance, for how long, who set it off, and why?",
                ("memberships",),
                rows="rebalances",
                essential=_names(
                    "group_id trigger reason start_time duration_ms trigger_client_id"
                ),
                useful=_names("member_count generation completed"),
            ),
            Answer(
                "lag",
                "How far behind is each group, by what it commits and fetches?",
                ("partitions", "exchanges", "transactions"),
                (Option("show", "last", "The last state, or all: each time that it changed"),),
                rows="offsets of consumers",
                essential=_names("group_id topic partition lag"),
                useful=_names("committed_offset end_offset position_lag client_id"),
            ),
            Answer(
                "delay",
                "How long from a record's produce request to the first fetch that brings it?",
                ("partitions",),
                (_by("topic", "partition", of="topic, partition, producer, reader"),),
                rows="produce requests with an acknowledged offset",
                essential=_names("p50_ms p99_ms max_ms"),
                useful=_names("produced fetched"),
            ),
            Answer(
                "producers",
                "Are idempotent and transactional producers healthy?",
                ("batches", "transactions"),
                (Option("show", "producers", "Rows for producers, transactions or gaps"),),
                rows="idempotent or transactional producers",
                essential=_names(
                    "client_id transactional_id producer_id gaps refused fenced resent "
                    "aborted unfinished outcome duration_ms start_time topic partition time "
                    "expected found"
                ),
                useful=_names("ended_by_broker missing records committed"),
            ),
            Answer(
                "network",
                "Is it the network or the broker that takes the time?",
                ("connections", "exchanges", "batches"),
                (_by("client_id", "broker", of="connections, or client_id, broker, software"),),
                rows="Kafka connections",
                essential=_names("broker_p50_ms network_percent rtt_ms"),
                useful=_names("requests latency_p50_ms retransmitted broker_p99_ms"),
            ),
            Answer(
                "leadership",
                "Which leaders moved, and what did clients go through?",
                ("topics", "errors", "partitions", "exchanges", "connections"),
                (Option("show", "moves", "Rows for moves or clients"),),
                rows="changes of a leader",
                essential=_names(
                    "topic partition time leader_before leader errors client_id client_ip "
                    "leader_errors reconnects metadata_requests"
                ),
                useful=_names("errors_ms error clients coordinator_errors metadata_busiest"),
            ),
            Answer(
                "batching",
                "Do producers batch and compress well, and what acks do they ask for?",
                ("decompressed_batches", "exchanges", "connections"),
                (_by("client_id", "topic", of="batches, or broker, client, software"),),
                rows="produced batches",
                essential=_names("batches records_p50 bytes_p50 codecs"),
                useful=_names("ratio acks age_p50_ms"),
            ),
            Answer(
                "audit",
                "Which offsets of which partition were written and read, and by whom?",
                ("partitions", "exchanges", "connections"),
                rows="offsets that were written or read",
                essential=_names("topic partition action first_offset last_offset client_id"),
                useful=_names("records groups"),
            ),
            Answer(
                "trust",
                "How much of this capture could be read, and what is missing?",
                ("exchanges", "connections", "batches", "problems"),
                rows="flaws",
                essential=_names("flaw count of detail"),
                useful=_names("bytes"),
            ),
        )
    }
)
"""Every answer by name."""

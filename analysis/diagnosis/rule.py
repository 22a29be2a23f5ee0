"""The declaration of a rule, and of a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from analysis.columns import Column
from analysis.diagnosis.words import Side
from dissector.arrays import value

if TYPE_CHECKING:
    from analysis.diagnosis.case import Case

Severity: TypeAlias = Literal["critical", "warning", "note"]
SEVERITIES: Final = get_args(Severity)
"""The worst first."""

Limits: TypeAlias = Mapping[str, float]
"""The values of a rule's thresholds, by name."""
Numbers: TypeAlias = Mapping[str, "int | float | str | None"]


@value
class Threshold:
    """A number that decides whether there is a finding; the first of a rule is its main one."""

    name: str
    default: float
    unit: str
    reason: str
    """Why this number, and not a lower or higher one: sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong with one client, group, topic or broker."""

    severity: Severity
    subject: str
    """The client, group, topic or broker, as in the sentence."""
    sentence: str
    evidence: str
    """Sentences with `numbers`."""
    numbers: Numbers
    """Numbers and names of the evidence: cells of one row of the result of `command`."""
    cause: str
    """The likely cause."""
    side: Side
    """Where to change something: client, broker, network or capture."""
    setting: str | None = None
    """The name of the setting, of clients in the Java client; with a value if one can be named."""
    change: str
    """What to change: an imperative sentence."""
    reference: str
    """KIP, RFC, or section of Kafka's documentation."""
    command: str
    """An answer with its options, or ``sql QUERY``; as on the command line, without the capture."""
    clients: tuple[str, ...] = ()
    """Client ids that the finding is about; empty: it is not about clients."""
    requests: int = 0
    """Requests that the finding concerns."""
    first_packet: int | None = None
    first_time: int | None = None
    """In ns."""
    last_time: int | None = None


Function: TypeAlias = "Callable[[Case, Limits], Iterator[Finding]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A question about a capture, and the function that finds what is wrong."""

    name: str
    question: str
    place: int
    """Rules are listed in this order."""
    rests_on: tuple[str, ...]
    """Names of answers, or of tables where no answer has the numbers."""
    thresholds: tuple[Threshold, ...]
    function: Function = field(repr=False)

    @property
    def limits(self) -> dict[str, float]:
        """The default values of the thresholds, by name."""
        return {threshold.name: threshold.default for threshold in self.thresholds}


def rule(
    *, question: str, place: int, rests_on: str, thresholds: Sequence[Threshold] = ()
) -> Callable[[Function], Function]:
    """Declare a rule; the parameters are the attributes of `Rule`.

    The decorated function gets the case and its limits, and yields findings.
    """

    def declare(function: Function) -> Function:
        name = function.__name__
        DECLARED[name] = Rule(
            name=name,
            question=question,
            place=place,
            rests_on=tuple(rests_on.split()),
            thresholds=tuple(thresholds),
            function=function,
        )
        return function

    return declare


DECLARED: Final[dict[str, Rule]] = {}
"""The rules of the modules that were imported."""

COLUMNS: Final = (
    Column("rule", "string", "name of the rule"),
    Column("severity", "string", "critical, warning or note"),
    Column("subject", "string", "client, group, topic or broker"),
    Column("sentence", "string", "what is wrong"),
    Column("evidence", "string", "numbers that show it"),
    Column("cause", "string", "likely cause"),
    Column("side", "string", "where to change something: client, broker, network or capture"),
    Column(
        "setting",
        "string",
        "name of the setting, with a value if one can be named; settings of "
        "clients have the names of the Java client",
    ),
    Column("change", "string", "what to change"),
    Column("reference", "string", "KIP, RFC or section of Kafka's documentation"),
    Column("command", "string", "command that shows more"),
    Column("requests", "int64", "requests that the finding concerns"),
    Column("share_percent", "double", "their share of all requests", "%"),
    Column("first_packet", "int64", "packet number of the first occurrence, if known"),
    Column("first_time", "time", "time of the first occurrence, if known"),
    Column("last_time", "time", "time of the last occurrence, if known"),
)
"""Columns of the findings. ``clients``, a tuple, and ``numbers``, a dict, follow them."""

"""Input and output options that commands share, and their errors.

Modules of commands import only click at their top: ``--help`` imports all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from analysis.commands import filter_options, presentation
from analysis.commands.coverage import Coverage
from analysis.commands.options import Integer, input_option, key_log_options, with_options
from analysis.startup import raise_interruption
from dissector.arguments import local_path
from dissector.arrays import value
from dissector.errors import DissectorError
from dissector.redaction import without_credentials

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from analysis.input.filters import Filter
    from analysis.input.open import Opened
    from dissector.pipeline import Progress
    from dissector.problems import Problem

F = TypeVar("F", bound=Callable[..., Any])

# Repeated here because the modules that define them import Arrow.
TABLE_NAMES: Final = (
    "exchanges", "errors", "batches", "records", "connections", "topics", "problems", "partitions",
    "memberships", "transactions", "decompressed_batches", "brokers", "clusters",
)  # fmt: skip
ALL: Final = "all"
"""Stands for all tables."""
TABLES_OR_ALL: Final = f"{', '.join(TABLE_NAMES)}, or all of them ({ALL})"

BROKERS: Final = "brokers"
_BROKERS: Final = f"select distinct broker_id, host, port from {BROKERS} order by all"

NOTHING: Final = (
    "No Kafka request or response was found. If brokers use a port other than 9092 and the "
    "connections began before the capture, use --port PORT. If the connections are encrypted, "
    "use --keylog FILE. If clients cannot connect, see summary."
)

ONLY_SEGMENTS: Final = (
    "Log segments contain no requests or responses. The command records writes their records, "
    "export --table batches their batches, and quality lists their damage."
)

WARNINGS: Final = 5
"""Maximum number of files that are named as unreadable, damaged or truncated."""
INCOMPLETE: Final = 1
"""Exit status if a file that the user named could not be read."""

DEFAULT_MEMORY: Final = 512
"""MB; as in `dissector`."""


def notify(text: str) -> None:
    """Print a line to standard error. Names in it may have any characters."""
    from analysis.display.terminal import printable

    click.echo(printable(text), err=True)


def chosen_tables(tables: Collection[str]) -> tuple[str, ...]:
    """The tables that an option names, each once."""
    return TABLE_NAMES if ALL in tables else tuple(dict.fromkeys(tables))


class _ClusterSelected(Exception):
    """Ends a pass: all selected brokers belong to one cluster, which the next pass selects."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster


@value
class Input:
    """The input options of a command."""

    captures: tuple[str, ...]
    ports: tuple[int, ...]
    keylog: Path | None
    jobs: int | None
    """Number of processes; None: the default."""
    memory: int
    """MB."""
    filter: Filter | None = None
    """None: no conditions; see `analysis.commands.filter_options`."""
    names_file: Path | None = None
    zone: str = presentation.UTC
    """As in `analysis.commands.presentation`."""
    unread: list[str] = field(default_factory=list, compare=False)
    """Those of `captures` that could not be read, once they were opened."""

    @contextmanager
    def opened(
        self, *, show_progress: bool = True, show_secrets: bool = False, reports: bool = True
    ) -> Iterator[Opened]:
        """The capture or exported tables, filtered.

        Read errors end the command with one sentence and exit status 1.

        `reports`: at the end, print the filter, and files that could not be read, or not wholly, to
        standard error. Only this method uses `jobs`: a process with threads, such as DuckDB's, must
        not be forked.
        """
        with self.options(show_progress=show_progress, show_secrets=show_secrets) as options:
            from analysis.display.presentation import names as presented_names
            from analysis.input.open import filter_report, open_input

            opened = open_input(self.captures, self.filter, jobs=self.jobs or 1, **options)
            yield opened
            presented_names().learn_hosts(opened.host_names)
            if reports and (report := filter_report(opened, self.filter)):
                notify(report)
            self.note(opened.file_problems, reports=reports)

    def note(self, problems: Sequence[Problem], *, reports: bool = True) -> None:
        """Note the files that could not be read; `reports`: as in `opened`."""
        from analysis.input.open import file_warnings
        from dissector.problems import UNREADABLE

        unreadable = [each.capture for each in problems if each.kind == UNREADABLE]
        self.unread.extend(name for name in unreadable if name in self.captures)
        warnings = file_warnings(problems) if reports else []
        for line in warnings[:WARNINGS]:
            notify(line)
        if (omitted := len(warnings) - WARNINGS) > 0:
            command = self.again("export --table problems")
            notify(f"Warning: {omitted:,} more files could not be read completely: {command}")

    @contextmanager
    def stored(
        self, tables: Collection[str], *, show_progress: bool = True, shows_brokers: bool = False,
        also: Collection[str] = (),
    ) -> Iterator[duckdb.DuckDBPyConnection]:  # fmt: skip
        """Tables on disk, for answers: see `analysis.sql.stored`. Errors: as in `opened`.

        `shows_brokers`: brokers are shown to people, so learn their ids and hosts. `also`: tables
        that exported tables may lack.

        If the filter selects brokers of one of several clusters, it selects this cluster: no other
        filter selects the rows of `topics` and the ends of partitions. Warns of several clusters
        otherwise.
        """
        try:
            with self._stored(tables, show_progress, shows_brokers, also) as connection:
                yield connection
        except _ClusterSelected as selected:  # before the context began
            chosen = replace(cast("Filter", self.filter), cluster=(selected.cluster,))
            source = replace(self, filter=chosen)
            with source._stored(tables, show_progress, shows_brokers, also) as connection:
                yield connection

    @contextmanager
    def _stored(
        self, tables: Collection[str], show_progress: bool, shows_brokers: bool,
        also: Collection[str],
    ) -> Iterator[duckdb.DuckDBPyConnection]:  # fmt: skip
        """See `stored`. Raises _ClusterSelected if the filter needs a cluster."""
        from analysis.display.presentation import names
        from analysis.input.clusters import CLUSTERS, ENDPOINTS
        from analysis.input.open import with_context
        from analysis.sql.stored import stored

        with self.opened(show_progress=show_progress) as capture:
            learns = shows_brokers and capture.has_table(BROKERS)
            also = [name for name in (*also, CLUSTERS) if capture.has_table(name)]
            tables = with_context(capture, [*tables, *([BROKERS] if learns else []), *also])
            with stored(capture.stream(tables), tables) as connection:
                names().learn_hosts(capture.host_names)
                if learns:
                    names().learn_brokers(connection.sql(_BROKERS).to_arrow_table())
                if CLUSTERS in tables:
                    endpoints = connection.sql(ENDPOINTS).to_arrow_table()
                    if "exchanges" in tables and (cluster := self._cluster(connection, endpoints)):
                        raise _ClusterSelected(cluster)
                    self.warn_of_clusters(endpoints)
                yield connection

    def _cluster(self, tables: duckdb.DuckDBPyConnection, endpoints: pa.Table) -> str | None:
        """The cluster of the brokers that the filter selects, if the capture has others, too."""
        from analysis.input.clusters import cluster_of
        from dissector.packets.formats.byte_input import is_stream

        if not self.filter or not self.filter.broker or self.filter.cluster:
            return None
        if any(map(is_stream, self.captures)):
            return None
        brokers = tables.sql("select distinct broker_ip, broker_port from exchanges").fetchall()
        return cluster_of(endpoints, brokers)

    def warn_of_clusters(self, endpoints: pa.Table) -> None:
        """Print a warning if there are several clusters, unless the filter selects one.

        `endpoints`: rows of `analysis.input.clusters.ENDPOINTS`.
        """
        from analysis.input.clusters import warning

        if self.filter and self.filter.cluster:
            return
        for line in warning(endpoints, "To select a cluster, add its option:", "--cluster {}"):
            notify(line)

    @contextmanager
    def options(
        self, *, show_progress: bool = True, show_secrets: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Options for `open_capture`. Errors in the context: as in `opened`."""
        from analysis.display.terminal import progress

        options = self.pass_options | {"show_secrets": show_secrets}
        try:
            with progress(show_progress) as show:
                yield options | {"progress": _interruptible(show)}
        except DissectorError as error:
            raise click.ClickException(str(error)) from error

    @property
    def pass_options(self) -> dict[str, Any]:
        """Options for `open_pass`, without progress."""
        return {"ports": self.ports or None, "keylog": self.keylog, "memory": self.memory << 20}

    def again(self, command: str) -> str:
        """The command line that runs another command, with its options, on the same capture."""
        from analysis.display.terminal import shell_files, shell_words

        verb, _, options = command.partition(" ")
        repeatable = len(self.captures) <= 3 and "-" not in self.captures
        names = shell_files(self.captures) if repeatable else "CAPTURE..."
        named = [word for port in self.ports for word in ("--port", str(port))]
        named += ["--keylog", str(self.keylog)] if self.keylog else []
        named += ["--memory", str(self.memory)] if self.memory != DEFAULT_MEMORY else []
        named += ["--names", str(self.names_file)] if self.names_file else []
        named += ["--tz", self.zone] if self.zone != presentation.UTC else []
        named += self.filter.options if self.filter else []
        words = ["kafka-dissector", verb, names, shell_words(named), options]
        return " ".join(filter(None, words))

    def no_rows(self, rows: str, coverage: Coverage) -> str:
        """The sentence that explains an empty result."""
        if self.filter:
            return f"No {rows} in the selected exchanges."
        if coverage.is_without_kafka:
            return self.nothing
        if coverage.is_complete:
            return f"No {rows} in this capture."
        return (
            f"No {rows} in the {coverage.read:,} of {coverage.payload:,} connections that could be "
            f"read; for the others, see {self.again('quality')}"
        )

    @property
    def nothing(self) -> str:
        """The sentence that explains why there is no request and no response."""
        return ONLY_SEGMENTS if self.has_only_segments else NOTHING

    @property
    def has_only_segments(self) -> bool:
        """Whether the input consists of log segments."""
        captures, segments = self._files
        return len(segments) > 0 and not captures

    @property
    def segments(self) -> tuple[str, ...]:
        """The log segments of the input."""
        return tuple(self._files[1])

    @property
    def _files(self) -> tuple[list[str], list[str]]:
        """The captures and the log segments; none of exported tables."""
        from analysis.input.exported import is_exported
        from dissector.capture import captures_and_segments

        return ([], []) if is_exported(self.captures) else captures_and_segments(self.captures)

    @property
    def name(self) -> str:
        """The captures, for a heading."""
        from analysis.display.terminal import first_three
        from dissector.packets.paths import input_name

        return without_credentials(first_three(self.captures, input_name))


def _interruptible(show: Progress | None) -> Progress:
    """A function that also raises the exception of a signal again, if it was lost."""

    def report(read: int, total: int | None) -> None:
        raise_interruption()
        if show is not None:
            show(read, total)

    return report


def processors() -> int:
    """Number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_capture(
    command: F, *, jobs: str = "1", metavar: str = "CAPTURE...", presents: bool = True,
    filters: Sequence[str] = tuple(filter_options.OPTIONS),
) -> F:  # fmt: skip
    """Add the arguments of commands that read captures; the command gets an `Input` as `source`.

    `jobs`: the default of `--jobs`; empty: it reads in one process. `presents`: it has the
    options of `analysis.commands.presentation`. `filters`: the options of `filter_options` that it
    has.
    """

    @wraps(command)
    def run(
        captures: tuple[str, ...], ports: tuple[int, ...], keylog: Path | None, memory: int,
        processes: int | None = None, names_file: Path | None = None, zone: str = presentation.UTC,
        **given: Any,
    ) -> None:  # fmt: skip
        with presentation.presenting(names_file, zone):
            chosen = filter_options.taken(given, filters)
            source = Input(captures, ports, keylog, processes, memory, chosen, names_file, zone)
            command(source=source, **given)
        if source.unread:
            click.get_current_context().exit(INCOMPLETE)

    options = (
        *_input_options(metavar, jobs),
        *(presentation.OPTIONS if presents else ()),
        *(filter_options.OPTIONS[name] for name in filters),
    )
    return cast(F, with_options(*options)(run))


def _input_options(metavar: str, jobs: str) -> Iterator[Callable[[Any], Any]]:
    """The captures, and how they are read; see `on_capture`."""
    yield click.argument(
        "captures", metavar=metavar, nargs=-1, required=True, shell_complete=_files,
        callback=_paths,
    )  # fmt: skip
    yield input_option(
        "--port", "ports", type=Integer(1, 65535), multiple=True, metavar="PORT",
        help="Broker port, to identify connections older than the capture. Connections to it that "
        "are not Kafka are reported. May be repeated.  [default: 9092]",
    )  # fmt: skip
    yield input_option(
        "--keylog", **key_log_options,
        help="Decrypt TLS with the secrets in FILE (NSS key log format, SSLKEYLOGFILE).",
    )  # fmt: skip
    if jobs:
        yield input_option(
            "--jobs", "processes", type=Integer(min=1), metavar="N", default=None,
            help=f"Read input of 256 MB or more with N processes.  [default: {jobs}]",
        )  # fmt: skip
    yield input_option(
        "--memory", type=Integer(16), default=DEFAULT_MEMORY, show_default=True, metavar="MB",
        help="Memory budget for input blocks and incomplete messages. When it is exceeded, the "
        "oldest data is dropped and reported.",
    )  # fmt: skip


def _paths(_: click.Context, __: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """The captures as paths, URLs or patterns."""
    if "" in given:
        raise click.BadParameter("the name of a file is empty")
    return tuple(map(local_path, given))


def _files(_: click.Context, __: click.Parameter, start: str) -> list[CompletionItem]:
    """Let the shell complete names of files."""
    return [CompletionItem(start, type="file")]


on_capture_alone = partial(on_capture, jobs="")
"""`on_capture` for commands that read in one process."""

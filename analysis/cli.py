"""The command line: ``kafka-dissector COMMAND CAPTURE...``

Exit status: 0; 1 when the input could not be read, or the output not be written; 2 when the command
line is wrong; 130 after Ctrl-C, 141 when whoever reads the output has gone, as other Unix tools
have it. Errors are one sentence on standard error.

What is heavy (NumPy, Arrow, rich) is imported where a command needs it, so that ``--help`` is not
slower than Python itself.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

if TYPE_CHECKING:
    import pyarrow as pa

    from dissector.capture import Capture
    from dissector.exchange import Exchange

F = TypeVar("F", bound=Callable[..., Any])

INTERRUPTED: Final = 130
READER_GONE: Final = 141

# Named here again because the modules that know them import Arrow.
TABLE_NAMES: Final = (
    "exchanges",
    "errors",
    "batches",
    "records",
    "connections",
    "topics",
    "problems",
)
FORMAT_NAMES: Final = ("jsonl", "csv", "parquet", "arrow")
BINARY_FORMATS: Final = ("parquet", "arrow")

SHOW_SECRETS: Final = "Show credentials and configuration values."

CHOICES: Final[dict[str, Callable[[Exchange], bool]]] = {
    "errors": lambda exchange: bool(exchange.error_count),
    "throttled": lambda exchange: bool(exchange.throttle_time_ms),
    "unanswered": lambda exchange: exchange.status == "unanswered",
    "undecoded": lambda exchange: exchange.status == "undecoded",
    "request_missing": lambda exchange: exchange.status == "request_missing",
}
"""What `show --only` chooses by."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A character that the terminal's encoding lacks is no reason to stop.
            stream.reconfigure(errors="backslashreplace")
    if arguments is None:  # the process is this command's alone
        sys.meta_path.insert(0, _NoPandas())
    try:
        status: int | None = app.main(arguments, prog_name="kafka-dissector", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return status or 0


class _NoPandas(MetaPathFinder):
    """Says that pandas is not installed.

    Arrow imports pandas at its first conversion, to know DataFrames when it sees them. No command
    makes one, and the import takes longer than all else that a small capture needs.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


class _Commands(click.Group):
    """Commands that end as the head of this module says, whatever ends them."""

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # What is still buffered goes nowhere, and Python does not complain of it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(READER_GONE)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{where}{error.strerror or error}") from error


def on_capture(command: F) -> F:
    """The arguments that all commands have."""
    command = click.option(
        "--port",
        "ports",
        type=click.IntRange(1, 65535),
        multiple=True,
        metavar="PORT",
        help="Where brokers listen, for connections that began before the capture; may be "
        "repeated.  [default: 9092]",
    )(command)
    command = click.option(
        "--keylog",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Secrets to decrypt TLS with, in the NSS key log format (SSLKEYLOGFILE).",
    )(command)
    return click.argument("captures", metavar="CAPTURE...", nargs=-1, required=True)(command)


@dataclass(frozen=True, slots=True)
class Output:
    """How and where rows are written."""

    form: str
    file: Path | None
    show_secrets: bool


def on_output(command: F) -> F:
    """The options of commands that write rows; the command gets an `Output`."""

    @wraps(command)
    def run(form: str, file: Path | None, show_secrets: bool, **given: Any) -> Any:
        return command(output=Output(form, file, show_secrets), **given)

    for option in (
        click.option("--show-secrets", is_flag=True, help=SHOW_SECRETS),
        click.option(
            "-o", "--output", "file", type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE", help="Write to a file, which takes this name when it is complete.",
        ),
        click.option(
            "--format", "form", type=click.Choice(FORMAT_NAMES), default="jsonl",
            show_default=True, help="How to write it.",
        ),
    ):  # fmt: skip
        run = option(run)
    return cast(F, run)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kafka-dissector", prog_name="kafka-dissector")
def app() -> None:
    """Kafka network traffic as tables.

    CAPTURE is a pcap or pcapng file, compressed or not, a broker's log segment, a folder or
    pattern of them, or - for standard input. Several are read as one.
    """


@app.command()
@on_capture
def summary(captures: tuple[str, ...], ports: tuple[int, ...], keylog: Path | None) -> None:
    """Show what is in a capture, what is wrong first."""
    from analysis.summary import Summary
    from analysis.summary_view import screen
    from analysis.terminal import write

    found = Summary()
    with opened(captures, ports, keylog) as capture:
        found.read(capture.stream(Summary.TABLES))
    name = ", ".join(captures[:3]) + (f" and {len(captures) - 3} more" if captures[3:] else "")
    write(screen(found, name, capture.packets, lambda rest: again(captures, ports, keylog, rest)))


@app.command()
@on_capture
@click.option(
    "--table", type=click.Choice(TABLE_NAMES), metavar="NAME", default="exchanges",
    show_default=True, help=f"Which table: {', '.join(TABLE_NAMES)}.",
)  # fmt: skip
@on_output
def export(
    captures: tuple[str, ...],
    ports: tuple[int, ...],
    keylog: Path | None,
    table: str,
    output: Output,
) -> None:
    """Write the rows of a table.

    Rows come out while the capture is read. Times are ISO 8601 in UTC with nanoseconds, bytes are
    base64; lists in csv are JSON. In the place of a secret stands [redacted].
    """
    _write(captures, ports, keylog, table, output)


@app.command()
@on_capture
@on_output
def records(
    captures: tuple[str, ...], ports: tuple[int, ...], keylog: Path | None, output: Output
) -> None:
    """Write the records of captures, or of a broker's log segments.

    As `export --table records` does. Of a segment, topic and partition are what the name of its
    folder says.
    """
    _write(captures, ports, keylog, "records", output)


def _write(
    captures: Sequence[str], ports: Sequence[int], keylog: Path | None, table: str, output: Output
) -> None:
    """Write the rows of a table, as and where it was asked for."""
    to_terminal = output.file is None and sys.stdout.isatty()
    if to_terminal and output.form in BINARY_FORMATS:
        raise click.UsageError(f"{output.form} is not for a terminal: use -o FILE, or a pipe")
    if output.file is not None and output.file.exists() and _is_among(output.file, captures):
        raise click.UsageError(f"{output.file} is the input")
    from analysis import export as write
    from analysis.text import without_controls
    from dissector.tables import TABLES

    schema, form = TABLES[table].schema, write.FORMATS[output.form]
    with opened(
        captures, ports, keylog, show_progress=not to_terminal, show_secrets=output.show_secrets
    ) as capture:
        batches: Iterator[pa.RecordBatch] = (batch for _, batch in capture.stream([table]))
        if to_terminal and output.form == "csv":
            batches = map(without_controls, batches)
        if output.file is None:
            form(batches, schema, sys.stdout.buffer)
            return
        try:
            with write.output(output.file) as sink:
                form(batches, schema, sink)
        except KeyboardInterrupt:
            click.echo(f"{write.partial(output.file)} has the rows up to here.", err=True)
            raise


@app.command()
@on_capture
@click.option("--packet", type=int, help="Those of which a message begins in this packet.")
@click.option("--correlation-id", type=int, help="Those with this correlation id.")
@click.option("--connection", type=int, help="Those of this connection, by its connection_id.")
@click.option("--only", type=click.Choice(list(CHOICES)), help="Those that are, or have, this.")
@click.option(
    "--limit", type=click.IntRange(1), default=10, show_default=True, help="How many at most."
)
@click.option("--show-secrets", is_flag=True, help=SHOW_SECRETS)
def show(
    captures: tuple[str, ...],
    ports: tuple[int, ...],
    keylog: Path | None,
    packet: int | None,
    correlation_id: int | None,
    connection: int | None,
    only: str | None,
    limit: int,
    show_secrets: bool,
) -> None:
    """Show exchanges as trees: offset, field, value.

    The first ones of the capture, or of those that the options choose.
    """
    from analysis.show import tree
    from analysis.terminal import write

    def is_chosen(exchange: Exchange) -> bool:
        return (
            packet in (None, exchange.request_packet, exchange.response_packet)
            and correlation_id in (None, exchange.correlation_id)
            and connection in (None, exchange.connection_id)
            and (only is None or CHOICES[only](exchange))
        )

    with opened(captures, ports, keylog) as capture:
        # One more than asked for, to know whether there are more.
        chosen = list(islice(filter(is_chosen, capture.exchanges()), limit + 1))
    for index, exchange in enumerate(chosen[:limit]):
        if index:
            click.echo()
        write(tree(exchange, secrets=show_secrets))
    if not chosen:
        click.echo("No such exchange is in the capture.", err=True)
    elif len(chosen) > limit:
        click.echo("There are more: --limit shows them.", err=True)


def _is_among(output: Path, captures: Sequence[str]) -> bool:
    return any(output.samefile(each) for each in captures if Path(each).exists())


@contextmanager
def opened(
    captures: Sequence[str],
    ports: Sequence[int],
    keylog: Path | None = None,
    *,
    show_progress: bool = True,
    show_secrets: bool = False,
) -> Iterator[Capture]:
    """The capture. What cannot be read becomes one sentence and exit status 1."""
    import dissector
    from analysis.terminal import progress

    options: dict[str, Any] = {"ports": ports} if ports else {}
    options |= {"show_secrets": show_secrets, "keylog": keylog}
    try:
        with progress(show_progress) as show:
            yield dissector.open_capture(captures, progress=show, **options)
    except dissector.DissectorError as error:
        raise click.ClickException(str(error)) from error


def again(captures: Sequence[str], ports: Sequence[int], keylog: Path | None, rest: str) -> str:
    """The command line that does something else with the same capture."""
    verb, *options = rest.split()
    repeatable = len(captures) <= 3 and "-" not in captures
    names = shlex.join(captures) if repeatable else "CAPTURE..."
    named = [word for port in ports for word in ("--port", str(port))]
    named += ["--keylog", shlex.quote(str(keylog))] if keylog else []
    return " ".join(["kafka-dissector", verb, names, *named, *options])

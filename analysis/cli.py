"""The command line: ``kafka-dissector COMMAND CAPTURE...``

Exit status: 0 for success; 1 if the input, or a named file of it, cannot be read, or the output
cannot be written; 2 for a usage error; 3 if `--fail-on` of `diagnose` or `compare` applies; 130
after Ctrl-C; 141 if the reader of the output has closed the pipe; 143 after SIGTERM, 129 after
SIGHUP. An error is one sentence on standard error.

A command is a module of `analysis.commands`, or an answer. It is imported when it is used. It
imports NumPy, Arrow and rich when it runs, so that ``--help`` takes hardly longer than Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from importlib import import_module
from io import BufferedIOBase, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any, Final, TextIO, cast

import click

from analysis.answers import ANSWERS
from analysis.commands.answers import command_of
from analysis.commands.options import with_suggestion
from analysis.export.files import writer
from analysis.startup import Terminated, prepare, raise_interruption

_LINE: Final = 200
"""More characters than the first sentence of a command's help."""
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
SIGNAL: Final = 128
"""The exit status after a signal is its number and this."""

COMMANDS: Final = (
    "summary", "diagnose", "compare", "export", "show", "browse", "cut", "trace", "records", "sql",
    "report", "encrypted", "sniff", "spark", "wireshark-plugin",
)  # fmt: skip
"""Commands, in the order of ``--help``: each is the `command` of a module with its name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    if arguments is None:  # the process runs only this command
        _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Escape characters that the encoding of the terminal lacks.
            stream.reconfigure(errors="backslashreplace")
    try:
        if arguments is None:
            prepare()
            sys.stdout = _buffered(sys.stdout)
        status: int | None = app.main(arguments, prog_name="kafka-dissector", standalone_mode=False)
    except click.ClickException as error:
        return _show(error)
    except (KeyboardInterrupt, click.Abort) as error:  # before a command runs
        return _status(error)
    return status or 0


def _replace_closed_streams() -> None:
    """Open the standard streams that the caller has closed: the next file that is opened would get
    their number. Standard input is then empty, and writing to standard output is an error."""
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"),
    ):  # fmt: skip
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))


def _show(error: click.ClickException) -> int:
    """Print an error, and return the exit status. Names in it may have any characters."""
    from analysis.display.terminal import printable
    from dissector.redaction import without_credentials

    shown = StringIO()
    error.show(shown)
    lines = without_credentials(shown.getvalue()).split("\n")
    click.echo("\n".join(map(printable, lines)), err=True, nl=False)
    _discard_unwritable()
    return error.exit_code


def _buffered(stream: TextIO) -> TextIO:
    """Standard output, with its name in errors.

    It has a buffer, even if `stream` has none (PYTHONUNBUFFERED), and is then flushed after each
    line: a raw stream writes a part if its reader closes the pipe, and reports no error.
    """
    if not isinstance(stream, TextIOWrapper):
        return stream
    stream.flush()
    return TextIOWrapper(
        writer(stream.fileno(), "standard output"),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering or not isinstance(stream.buffer, BufferedIOBase),
    )


@contextmanager
def _with_statuses() -> Iterator[None]:
    """A context whose errors have the exit statuses of this module; its output is then written."""
    try:
        try:
            yield
        except click.exceptions.Exit:  # the end of --help
            sys.stdout.flush()
            raise
        except Exception:
            raise_interruption()
            raise
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        raise click.exceptions.Exit(_status(error)) from None
    except BrokenPipeError:
        _discard_unwritable()
        raise click.exceptions.Exit(PIPE_CLOSED) from None
    except OSError as error:
        _discard_unwritable()
        raise click.ClickException(_reason(error)) from error


def _reason(error: OSError) -> str:
    """The file and the reason. Temporary files have no names in errors."""
    if error.filename is None and error.errno in (ENOSPC, EDQUOT):
        from tempfile import gettempdir

        reason = f"{os.strerror(error.errno)}; set TMPDIR to another folder"
        return f"temporary files in {gettempdir()}: {reason}"
    where = f"{error.filename}: ".replace("\n", "\\n") if error.filename else ""
    return f"{where}{error.strerror or error}"


def _status(error: BaseException) -> int:
    """The exit status after Ctrl-C, SIGTERM or SIGHUP."""
    return SIGNAL + error.number if isinstance(error, Terminated) else INTERRUPTED


def _discard_unwritable() -> None:
    """Discard buffered output that cannot be written; Python would report it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Commands(click.Group):
    """Commands and answers, with the exit statuses of this module."""

    def make_context(self, *given: Any, **options: Any) -> click.Context:
        with _with_statuses():
            return super().make_context(*given, **options)

    def invoke(self, ctx: click.Context) -> None:
        with _with_statuses():
            super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            if Path(name).exists():
                ctx.fail(f"{name!r} is a file, not a command: kafka-dissector summary {name}")
            names = self.list_commands(ctx)
            ctx.fail(with_suggestion(f"No such command {name!r}.", name, names))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *ANSWERS]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in (("Commands", COMMANDS), ("Answers", ANSWERS)):
            commands = {name: self.get_command(ctx, name) for name in names}
            helps = [(n, c.get_short_help_str(limit=_LINE)) for n, c in commands.items() if c]
            with formatter.section(title):
                formatter.write_dl(helps)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in ANSWERS:
            return command_of(ANSWERS[cmd_name])
        if cmd_name in COMMANDS:
            module = import_module(f"analysis.commands.{cmd_name.replace('-', '_')}")
            return cast(click.Command, module.command)
        former = (answer for answer in ANSWERS.values() if cmd_name in answer.former_names)
        return next(map(command_of, former), None)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kafka-dissector", prog_name="kafka-dissector")
def app() -> None:
    """Analyse captured Kafka network traffic.

    CAPTURE is a pcap or pcapng file, which may be compressed, a log segment of a broker, a folder
    or pattern of such files, or - for standard input. Several files are read as one capture.
    """


if __name__ == "__main__":
    sys.exit(main())

"""The command line: ``kafka-dissector COMMAND CAPTURE...``

Exit status: 0 for success; 1 if the input, or a named file of it, cannot be read, or the output
cannot be written; 2 for a usage error; 3 if `--fail-on` of `diagnose` or `compare` applies; 130
after Ctrl-C; 141 if the reader of the output has closed the pipe. An error is one sentence on
standard error.

A command is a module of `analysis.commands`, or an answer. It is imported when it is used. It
imports NumPy, Arrow and rich when it runs, so that ``--help`` takes hardly longer than Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Final, TextIO, cast

import click

from analysis.answers import ANSWERS
from analysis.commands.answers import command_of
from analysis.commands.choice import with_suggestion
from analysis.startup import (
    configure_libraries,
    defer_functions,
    defer_masked_arrays,
    end_quickly,
    hide_pandas,
)

_LINE: Final = 200
"""More characters than the first sentence of a command's help."""
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

COMMANDS: Final = (
    "summary",
    "diagnose",
    "compare",
    "export",
    "show",
    "browse",
    "cut",
    "trace",
    "records",
    "sql",
    "report",
    "sniff",
    "spark",
    "wireshark-plugin",
)
"""Commands, in the order of ``--help``: each is the `command` of a module with its name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Escape characters that the encoding of the terminal lacks.
            stream.reconfigure(errors="backslashreplace")
    try:
        if arguments is None:  # the process runs only this command
            configure_libraries()
            end_quickly()
            sys.stdout = _buffered(sys.stdout)
            hide_pandas()
            defer_masked_arrays()
            defer_functions()
        status: int | None = app.main(arguments, prog_name="kafka-dissector", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):  # before a command runs
        return INTERRUPTED
    return status or 0


def _buffered(stream: TextIO) -> TextIO:
    """The stream, with a buffer if it has none (PYTHONUNBUFFERED); it is flushed after each line.

    A raw stream writes a part if its reader closes the pipe, and reports no error.
    """
    if not isinstance(stream, TextIOWrapper) or not isinstance(stream.buffer, FileIO):
        return stream
    encoding, errors = stream.encoding, stream.errors
    writer = BufferedWriter(cast(FileIO, stream.detach()))
    return TextIOWrapper(writer, encoding, errors, line_buffering=True)


class _Commands(click.Group):
    """Commands and answers, with the exit statuses of this module."""

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # Discard buffered output; Python would report it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(PIPE_CLOSED)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{where}{error.strerror or error}") from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
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

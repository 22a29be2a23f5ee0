"""The command line: ``kafka-dissector COMMAND CAPTURE...``

Exit status: 0; 1 when the input could not be read, or the output not be written; 2 when the command
line is wrong; 130 after Ctrl-C, 141 when whoever reads the output has gone, as other Unix tools
have it. Errors are one sentence on standard error.

A command is a module of `analysis.commands`, imported when it is asked for. What is heavy (NumPy,
Arrow, rich) it imports when it runs, so that ``--help`` is not slower than Python itself.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Final, cast

import click

from analysis.answers import ANSWERS
from analysis.commands.answers import command_of
from analysis.commands.common import NoPandas

WHILE_IMPORTING: Final = 50_000
"""Objects made until a search for unused cycles: few come of imports, and with Python's 700 all
modules would be looked at over and over. `commands.common.imported` ends it."""
INTERRUPTED: Final = 130
READER_GONE: Final = 141

COMMANDS: Final = (
    "summary",
    "export",
    "show",
    "records",
    "sql",
    "report",
    "sniff",
    "spark",
)
"""Each is the `command` of the module of its name, in the order of ``--help``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A character that the terminal's encoding lacks is no reason to stop.
            stream.reconfigure(errors="backslashreplace")
    if arguments is None:  # the process is this command's alone
        sys.meta_path.insert(0, NoPandas())
        gc.set_threshold(WHILE_IMPORTING)
    try:
        status: int | None = app.main(arguments, prog_name="kafka-dissector", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return status or 0


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

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *ANSWERS]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in (("Commands", COMMANDS), ("Answers", ANSWERS)):
            room = formatter.width - 6 - max(map(len, names))
            commands = {name: self.get_command(ctx, name) for name in names}
            helps = [(n, each.get_short_help_str(room)) for n, each in commands.items() if each]
            with formatter.section(title):
                formatter.write_dl(helps)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in ANSWERS:
            return command_of(ANSWERS[cmd_name])
        if cmd_name in COMMANDS:
            return cast(click.Command, import_module(f"analysis.commands.{cmd_name}").command)
        former = (answer for answer in ANSWERS.values() if cmd_name in answer.former_names)
        return next(map(command_of, former), None)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kafka-dissector", prog_name="kafka-dissector")
def app() -> None:
    """Kafka network traffic as tables.

    CAPTURE is a pcap or pcapng file, compressed or not, a broker's log segment, a folder or
    pattern of them, or - for standard input. Several are read as one.
    """


if __name__ == "__main__":
    sys.exit(main())

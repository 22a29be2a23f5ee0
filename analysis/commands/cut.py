"""``kafka-dissector cut``: write the packets of exchanges to a capture file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analysis.commands.common import Input, on_capture_alone
from analysis.commands.options import Number, named_command, on_overwrite, output_option
from analysis.commands.output import STANDARD_OUTPUT, check_file

if TYPE_CHECKING:
    from analysis.cutting.driver import CutResult


@named_command("cut")
@on_capture_alone
@output_option(
    "-o", "--output", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    required=True, help="Write the packets to FILE, as pcapng; - is standard output.",
)  # fmt: skip
@on_overwrite
@click.option(
    "--context", type=Number(0), metavar="SECONDS",
    help="Also write all packets of the connections within this time before or after a message of "
    "the selected exchanges. Packets are then written whole.",
)  # fmt: skip
@click.option(
    "--secrets", is_flag=True,
    help="Also write the TLS secrets of the connections, so that FILE can be decrypted.",
)  # fmt: skip
def command(
    source: Input, file: Path, overwrite: bool, context: float | None, secrets: bool
) -> None:
    """Write the packets of the selected exchanges to a capture file.

    FILE contains the segments of their messages, with retransmissions, acknowledgements, and the
    handshakes of their connections. Other messages are removed from these segments. Each message
    has a packet comment, which Wireshark shows. Nothing is redacted: FILE contains the records and
    credentials in these messages.
    """
    if file != STANDARD_OUTPUT:
        check_file(file, overwrite=overwrite, captures=source.captures)
    elif sys.stdout.isatty():
        raise click.UsageError("cannot write pcapng to a terminal: use -o FILE or a pipe")
    from analysis.cutting.driver import check_output, cut
    from analysis.display.terminal import shell_words
    from analysis.input.passes import check_files
    from dissector.arguments import name_text
    from dissector.pipeline import collected

    with source.options():
        check_files(source.captures)
        check_output(file)
    with source.opened() as capture:
        exchanges = collected(capture.stream(["exchanges"]), ["exchanges"])["exchanges"]
    if not len(exchanges):
        raise click.ClickException("no exchange is selected; nothing was written")
    chosen = shell_words(source.filter.options) if source.filter else "all exchanges"
    names = ", ".join(Path(name_text(each)).name for each in source.captures)
    with source.options(show_progress=False), _readable(file) as written:
        result = cut(
            source.captures, exchanges, written, context=context, secrets=secrets,
            title=f"Cut from {names}: {chosen}", overwrite=overwrite, **source.pass_options,
        )  # fmt: skip
    remedy = "--context SECONDS" if context is None else "a longer --context"
    click.echo(_report(file, result, remedy), err=file == STANDARD_OUTPUT)


@contextmanager
def _readable(file: Path) -> Iterator[Path]:
    """The file to write: a temporary one for standard output, since `cut` reads it again."""
    if file != STANDARD_OUTPUT:
        yield file
        return
    import shutil

    from analysis.temporary import temporary_folder

    with temporary_folder() as folder:
        written = Path(folder, "cut.pcapng")
        yield written
        with written.open("rb") as packets:
            shutil.copyfileobj(packets, sys.stdout.buffer)


def _report(file: Path, result: CutResult, remedy: str) -> str:
    from analysis.display.terminal import counted, printable

    name = "standard output" if file == STANDARD_OUTPUT else printable(str(file))
    text = (
        f"{name}: {counted(result.exchanges, 'exchange')} of "
        f"{counted(result.connections, 'connection')}, {counted(result.packets, 'packet')}"
    )
    if result.trimmed:
        text += f"; other messages were removed from {counted(result.trimmed, 'packet')}"
    if result.secrets:
        text += f"; {counted(result.secrets, 'TLS secret')}"
    if result.encrypted:
        text += (
            f"\n{counted(result.encrypted, 'connection')} with TLS: all packets up to the last "
            "selected message, because TLS is decrypted in order"
        )
    if result.closed:
        text += (
            f"\nIn {counted(result.closed, 'connection')}, TCP sequence numbers were changed, "
            "because otherwise the exchanges after removed messages could not be found"
        )
    if result.unreadable:
        text += (
            "\nExchanges that differ from those in the capture, because the messages around them "
            f"are missing: {result.unreadable:,}; use {remedy}"
        )
    return text

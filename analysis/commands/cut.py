"""``kafka-dissector cut``: write the packets of exchanges to a capture file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analysis.commands.common import Input, on_capture_alone
from analysis.commands.options import Number, named_command, on_overwrite, output_option
from analysis.commands.output import check_file

if TYPE_CHECKING:
    from analysis.cutting.driver import CutResult


@named_command("cut")
@on_capture_alone
@output_option(
    "-o", "--output", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    required=True, help="Write the packets to FILE, as pcapng.",
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
    check_file(file, overwrite=overwrite, captures=source.captures)
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
    with source.options(show_progress=False):
        result = cut(
            source.captures, exchanges, file, context=context, secrets=secrets,
            title=f"Cut from {names}: {chosen}", overwrite=overwrite, **source.pass_options,
        )  # fmt: skip
    remedy = "--context SECONDS" if context is None else "a longer --context"
    click.echo(_report(file, result, remedy))


def _report(file: Path, result: CutResult, remedy: str) -> str:
    from analysis.display.terminal import counted, printable

    text = (
        f"{printable(str(file))}: {counted(result.exchanges, 'exchange')} of "
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

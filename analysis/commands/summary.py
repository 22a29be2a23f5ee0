"""``kafka-dissector summary``: what is in a capture, at a glance."""

from __future__ import annotations

import click

from analysis.commands.common import Input, on_capture, on_pager


@click.command("summary")
@on_capture
@on_pager
def command(source: Input, no_pager: bool) -> None:
    """Show what is in a capture, what is wrong first."""
    from analysis.display.summary_screen import screen
    from analysis.display.terminal import write
    from analysis.summary import Summary

    found = Summary()
    with source.opened() as capture:
        found.read(capture.stream(Summary.TABLES))
    parts = screen(
        found, source.name, capture.packets, source.again, has_keylog=source.keylog is not None
    )
    write(parts, pager=not no_pager)

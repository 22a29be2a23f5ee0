"""``kafka-dissector summary``: print the contents of a capture on one screen."""

from __future__ import annotations

from analysis.commands.common import Input, on_capture, on_pager
from analysis.commands.sections import named_command


@named_command("summary")
@on_capture
@on_pager
def command(source: Input, no_pager: bool) -> None:
    """Summarise a capture, problems first."""
    from analysis.display.summary_screen import screen
    from analysis.display.terminal import write
    from analysis.input.open import filter_report
    from analysis.summary.counts import Summary

    summary = Summary()
    with source.opened(reports=False) as capture:
        summary.read(capture.stream(Summary.TABLES))
    parts = screen(
        summary, source.name, capture.packets, source.again, has_keylog=source.keylog is not None,
        note=filter_report(capture, source.filter),
    )  # fmt: skip
    write(parts, pager=not no_pager)

"""``kafka-dissector summary``: print the contents of a capture on one screen."""

from __future__ import annotations

from dataclasses import replace

from analysis.commands.common import Input, on_capture
from analysis.commands.options import named_command, on_pager


@named_command("summary")
@on_capture
@on_pager
def command(source: Input, no_pager: bool) -> None:
    """Summarise a capture, problems first."""
    from analysis.display.summary_screen import screen
    from analysis.display.terminal import write
    from analysis.input.clusters import CLUSTERS, Endpoints
    from analysis.input.open import filter_report
    from analysis.summary.counts import Summary

    summary, endpoints = Summary(), Endpoints()
    with source.opened(reports=False) as capture:
        also = (CLUSTERS,) if capture.has_table(CLUSTERS) else ()
        summary.read(endpoints.taken(capture.stream((*Summary.TABLES, *also))))
    segments = source.segments if source.filter is None else ()
    if segments:
        with replace(source, captures=segments).opened(reports=False) as logs:
            summary.read(logs.stream(Summary.SEGMENT_TABLES))
    source.warn_of_clusters(endpoints.table)
    parts = screen(
        summary, source.name, capture.packets, source.again, has_keylog=source.keylog is not None,
        note=filter_report(capture, source.filter), without_tcp=capture.without_tcp,
        only_segments=bool(segments) and source.has_only_segments,
    )  # fmt: skip
    write(parts, pager=not no_pager)

"""``kafka-dissector browse``: show a capture in full screen."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from analysis.commands.common import Input, on_capture_alone
from analysis.commands.filter_options import ON_ARRIVAL
from analysis.commands.options import decoder, named_command, on_schema_registry, on_secrets
from analysis.extras import needed
from analysis.startup import allow_pandas

if TYPE_CHECKING:
    from analysis.input.filters import Filter


@named_command("browse")
@partial(on_capture_alone, filters=ON_ARRIVAL)
@on_schema_registry
@on_secrets
def command(source: Input, registry: str | None, show_secrets: bool) -> None:
    """Browse a capture in full screen: exchanges, fields, packets, findings, answers.

    The filter options set the initial filter, which you can change on the screen. Press ? for the
    keys. Messages of a large capture are stored in the folder for temporary files (TMPDIR), not in
    memory. To browse one of several clusters, export its tables with --cluster, and browse them.
    """
    allow_pandas()
    with source.options(show_progress=False, show_secrets=show_secrets) as options:
        with needed("browse"):
            from analysis.browse.app import Browser
        from analysis.browse.capture_source import CaptureSource
        from dissector.errors import DissectorError

        decode = decoder(registry)
        if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
            raise DissectorError("browse needs a terminal")

        def again(text: str, chosen: Filter | None) -> str:
            return replace(source, filter=chosen).again(text)

        capture = CaptureSource(source.captures, options)
        app = Browser(
            capture, source.name, again, chosen=source.filter, secrets=show_secrets, decode=decode
        )
        try:
            app.show()
        finally:
            capture.close()
    click.get_current_context().exit(app.return_code or 0)

"""The options of how times and addresses are shown; see `analysis.display.presentation`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from analysis.commands.options import input_option, with_suggestion

if TYPE_CHECKING:
    from datetime import tzinfo

    from analysis.names.addresses import Names

UTC: Final = "UTC"

OPTIONS: Final = (
    input_option(
        "--names", "names_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Show the names in FILE next to addresses, and accept them in --client and --broker. "
        "FILE contains lines or CSV with an address or network and a name, JSON, or the JSON "
        "output of kubectl get pods.",
    ),
    input_option(
        "--tz", "zone", default=UTC, show_default=True, metavar="ZONE",
        help="Print times in this time zone, such as Europe/Berlin, and interpret --since and "
        "--until in it. Exported times stay in UTC.",
    ),
)  # fmt: skip
"""`presenting` takes their values."""


@contextmanager
def presenting(names_file: Path | None, zone: str) -> Iterator[None]:
    """Use the options in the context. Raises click.UsageError for a wrong value."""
    from analysis.display.presentation import presented

    with presented(_zone(zone), _names(names_file)):
        yield


def _zone(name: str) -> tzinfo:
    if name == UTC:
        from datetime import timezone

        return timezone.utc  # noqa: UP017 - `UTC` is a name here
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = f"--tz {name!r} is not a time zone; use a name such as Europe/Berlin"
        raise click.UsageError(
            with_suggestion(message, name, sorted(available_timezones()))
        ) from None


def _names(file: Path | None) -> Names:
    from analysis.names.addresses import Names

    if file is None:
        return Names()
    from analysis.names.files import read_names
    from dissector.errors import DissectorError

    try:
        return Names(read_names(file))
    except DissectorError as error:
        raise click.UsageError(f"--names {error}") from error

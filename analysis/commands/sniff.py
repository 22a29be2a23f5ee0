"""``kafka-dissector sniff``: show live traffic."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from analysis.commands import filter_options, presentation
from analysis.commands.common import ALL, TABLE_NAMES, TABLES_OR_ALL, chosen_tables
from analysis.commands.filter_options import ON_ARRIVAL
from analysis.commands.options import (
    Choice,
    Integer,
    decoder,
    key_log_options,
    named_command,
    on_schema_registry,
    output_option,
    with_options,
)

if TYPE_CHECKING:
    from analysis.browse.live_app import LiveBrowser
    from analysis.display.summary_screen import Command
    from analysis.input.filters import Filter
    from analysis.live.lines import JsonLinesFile, LineView, RowFilter
    from analysis.live.parquet_writer import TableWriter
    from analysis.live.recorder import Recorder
    from analysis.live.session import Watcher
    from analysis.live.sources import Origin
    from analysis.live.watchers import Notices
    from analysis.summary.counts import Summary
    from dissector.packets.live import LiveSource, Tap
    from dissector.pipeline import Pipeline

UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Quantity(click.ParamType[int]):
    """A number with a unit suffix."""

    def __init__(self, name: str, units: str, most: str) -> None:
        """`most`: the largest quantity."""
        self.name = name
        self._units = units
        self._most = most

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        match = re.fullmatch(rf"([1-9][0-9]{{0,17}})([{self._units}]?)", str(value))
        if match is None:
            units = ", ".join(self._units)
            detail = f"{value!r} is not a {self.name}: expected a number and a unit ({units})"
            self.fail(detail, param, ctx)
        quantity, most = (
            int(digits) * UNITS[unit]
            for digits, unit in (match.groups(), (self._most[:-1], self._most[-1]))
        )
        if quantity > most:
            self.fail(
                f"{value!r} is too large: the largest {self.name} is {self._most}", param, ctx
            )
        return quantity


SIZE: Final = Quantity("size", "kMG", "1000000G")
SPAN: Final = Quantity("time", "smhd", "36500d")


@named_command("sniff")
@click.argument("pipe", metavar="[PIPE]", required=False)
@click.option(
    "-i", "--interface", "interfaces", multiple=True, metavar="NAME",
    help="Capture on this interface, or with any, on all interfaces. May be repeated.",
)  # fmt: skip
@click.option(
    "--port", "ports", type=Integer(1, 65535), multiple=True, metavar="PORT",
    help="Broker port; on an interface, capture only this port. May be repeated.",
)  # fmt: skip
@click.option(
    "--filter", "expression", default="", metavar="EXPRESSION",
    help="Capture only packets that match this filter, in the syntax of tcpdump.",
)  # fmt: skip
@click.option(
    "--keylog", **key_log_options,
    help="Decrypt TLS with the secrets in FILE (NSS key log format); FILE may grow.",
)  # fmt: skip
@click.option(
    "--view", type=Choice(["lines", "jsonl", "screen", "none"]), default="lines", show_default=True,
    help="Show a line for each exchange, rows as JSON, rates and latencies in full screen, or "
    "only the summary at the end.",
)  # fmt: skip
@on_schema_registry
@with_options(*presentation.OPTIONS, *(filter_options.OPTIONS[name] for name in ON_ARRIVAL))
@output_option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write the selected exchanges to FILE, as JSON Lines.",
)  # fmt: skip
@output_option(
    "--write", "record", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write the packets to FILE, as pcapng.",
)  # fmt: skip
@output_option(
    "--export", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Write each table to a folder in DIR, as Parquet files; start a new file every five "
    "minutes.",
)  # fmt: skip
@output_option(
    "--table", "tables", type=Choice((*TABLE_NAMES, ALL)), metavar="NAME", multiple=True,
    help=f"With --export: write only this table: {TABLES_OR_ALL}. May be repeated.  "
    "[default: those of summary, batches and topics]",
)  # fmt: skip
@output_option(
    "--rotate-size", type=SIZE, metavar="SIZE",
    help="Start a new file after this many bytes: 500k, 100M, 2G.",
)  # fmt: skip
@output_option(
    "--rotate-time", type=SPAN, metavar="TIME",
    help="Start a new file after this time: 90, 5m, 1h.",
)  # fmt: skip
@output_option(
    "--keep", type=Integer(1), metavar="N", help="Keep only the latest N files of each kind."
)
@click.option(
    "--metrics", "page", metavar="[ADDRESS:]PORT",
    help="Serve Prometheus metrics on this address and port.  [default address: 127.0.0.1]",
)  # fmt: skip
@click.option(
    "--max-series", type=Integer(1), metavar="N", default=1000, show_default=True,
    help="Limit the label combinations of a metric to N; later ones are counted as other.",
)  # fmt: skip
@click.option(
    "--unanswered-after", "patience", type=SPAN, metavar="TIME", default="60s", show_default=True,
    help="Count a request as unanswered after this time.",
)  # fmt: skip
@click.option(
    "--buffer", "buffer_bytes", type=SIZE, metavar="SIZE", default="32M", show_default=True,
    help="Set the size of the kernel buffer of each interface.",
)  # fmt: skip
def command(names_file: Path | None, zone: str, **given: Any) -> None:
    """Show exchanges as they happen, and a summary at the end (Ctrl-C).

    Reads interfaces, which requires root or CAP_NET_RAW, or a pipe from tcpdump or dumpcap (- for
    standard input):

      ssh HOST tcpdump -U -w - port 9092 | kafka-dissector sniff -
    """
    with presentation.presenting(names_file, zone):
        _sniff(chosen=filter_options.taken(given, ON_ARRIVAL), **given)


def _sniff(
    pipe: str | None, interfaces: tuple[str, ...], ports: tuple[int, ...], expression: str,
    buffer_bytes: int, **given: Any,
) -> None:  # fmt: skip
    """Check the options, and capture."""
    _check(pipe, interfaces, expression, **given)
    from analysis.live.sources import Origin
    from dissector.errors import DissectorError

    origin = Origin(pipe, interfaces, ports, expression, buffer_bytes)
    if given["view"] == "screen" and origin.is_file:
        raise click.UsageError(
            "--view screen shows rates of the last seconds, which a file does not have: use --view "
            "lines, or kafka-dissector summary"
        )
    try:
        failures = _watch(origin, **given)
    except DissectorError as error:
        raise click.ClickException(str(error)) from error
    if failures:
        raise click.ClickException("; ".join(failures))


def _check(pipe: str | None, interfaces: tuple[str, ...], expression: str, **given: Any) -> None:
    """Raise UsageError for options that exclude or need each other."""
    if bool(pipe) == bool(interfaces):
        fault = "two inputs" if pipe else "no input"
        raise click.UsageError(f"{fault}: name either an interface (-i NAME) or a pipe (-)")
    if pipe and expression:
        raise click.UsageError(
            "--filter applies to interfaces: apply the filter in the program that writes the pipe"
        )
    if pipe and Path(pipe).is_dir():
        raise click.UsageError(
            f"{pipe} is a folder: sniff reads a pipe or a file; use kafka-dissector summary"
        )
    record = given["record"]
    if pipe and record and record.exists() and Path(pipe).exists() and record.samefile(pipe):
        raise click.UsageError(f"{record} is the input: choose another file for --write")
    if given["output"] and given["output"].suffix in (".parquet", ".csv", ".arrow"):
        raise click.UsageError("--output writes JSON Lines; for Parquet use --export DIR")
    if given["registry"] and given["view"] != "screen":
        raise click.UsageError("--schema-registry needs --view screen, which shows records")
    if given["tables"] and not given["folder"]:
        raise click.UsageError("--table needs --export DIR")
    if given["keep"] and not (given["rotate_size"] or given["rotate_time"]):
        raise click.UsageError("--keep needs --rotate-size or --rotate-time")


def _watch(
    origin: Origin, *, keylog: Path | None, patience: int, view: str, chosen: Filter | None,
    page: str | None, max_series: int, registry: str | None, **kept: Any,
) -> list[str]:  # fmt: skip
    """Capture until the end, and show the summary. Returns errors of writers."""
    decode = decoder(registry)
    new_screen = _screen_class() if view == "screen" else None
    from analysis.live import privileges, sources, terminal
    from analysis.live.session import Session, ended_by_signals
    from analysis.live.watchers import Notices, SummaryWatcher
    from dissector.packets.live import LiveSource
    from dissector.streams.streaming import DEFAULT_MEMORY

    chosen = _started(chosen, origin)
    select = _selector(chosen)
    serve = _server(page, max_series) if page else None
    feeds = (terminal.with_keyboard(origin) if view == "screen" else origin).feeds()
    _import_modules()
    privileges.drop()  # sockets are open, and modules that only root may read are imported
    source = LiveSource(feeds)
    capture = sources.open_pipeline(source, origin, keylog=keylog, timeout=patience)
    counted, notices = SummaryWatcher(), Notices(is_paused=view == "screen")
    metrics = [serve(source, capture)] if serve else []
    writers = _writers(source, select, notices, **kept)
    lines = _line_view(view, select, source.stop)
    watchers = [counted, notices, *metrics, *writers, *filter(None, [lines])]
    if new_screen:
        options = {"ports": origin.ports or None, "keylog": keylog, "memory": DEFAULT_MEMORY}
        full_screen = new_screen(select, chosen, options, decode)
        source.tap = _both(source.tap, full_screen.tap)
        session = Session(source, capture, watchers, full_screen.watchers)
        with ended_by_signals(session.stop):
            full_screen.attach(session, lambda: _status(source, capture, notices), origin.name)
            full_screen.show()
            notices.release()
    else:
        session = Session(source, capture, watchers)
        with ended_by_signals(session.stop):
            _show_start(notices, origin, chosen)
            session.run()
    if lines and lines.error:
        raise lines.error
    if view != "jsonl":
        _show_summary(
            counted.summary, origin.name, capture.packets, _again(origin, **kept),
            has_keylog=keylog is not None, without_tcp=capture.without_tcp,
        )  # fmt: skip
    return [writer.failure for writer in writers if writer.failure is not None]


def _import_modules() -> None:
    """Import what a session needs, because only root may be able to read some of the modules."""
    from analysis.display import summary_screen  # noqa: F401
    from analysis.live import lines, parquet_writer, recorder  # noqa: F401
    from analysis.startup import import_pipeline

    import_pipeline()


def _line_view(view: str, select: RowFilter, stop: Callable[[], None]) -> LineView | None:
    """The view that writes exchanges to standard output; None for another view."""
    from analysis.live.lines import LineFormat, LineView, as_json, as_json_for_terminal

    if view not in ("lines", "jsonl"):
        return None
    json_rows = as_json_for_terminal if sys.stdout.isatty() else as_json
    return LineView(select, json_rows if view == "jsonl" else LineFormat(), stop)


def _show_start(notices: Notices, origin: Origin, chosen: Filter) -> None:
    from analysis.display.terminal import shell_words

    notices.show(f"capturing from {origin.name}; Ctrl-C ends")
    if chosen:
        notices.show(f"showing the exchanges of {shell_words(chosen.options)}")


def _show_summary(
    summary: Summary, name: str, packets: int, again: Command, *, has_keylog: bool,
    without_tcp: Mapping[str, int],
) -> None:  # fmt: skip
    from analysis.display.summary_screen import screen
    from analysis.display.terminal import write

    click.echo()
    parts = screen(summary, name, packets, again, has_keylog=has_keylog, without_tcp=without_tcp)
    write(parts)
    if again("summary") is None:
        click.echo("\nTo analyse the packets later, capture with --write FILE.")


def _started(chosen: Filter | None, origin: Origin) -> Filter:
    """The filter of rows. Times are relative to the start of a file, or to now."""
    from analysis.input.filters import Filter

    chosen = chosen or Filter()
    if not chosen.is_relative:
        return chosen
    from analysis.input.passes import first_time

    start = first_time([origin.pipe]) if origin.pipe and origin.is_file else None
    return chosen.starting(time.time_ns() if start is None else start)


def _selector(chosen: Filter) -> RowFilter:
    if not chosen:
        return lambda rows: rows
    from analysis.sql.conditions import Condition

    return Condition(chosen.sql, chosen.names)


def _both(first: Tap | None, second: Tap) -> Tap:
    """A tap that passes packets to both."""
    if first is None:
        return second

    def tap(*packets: Any) -> None:
        first(*packets)
        second(*packets)

    return tap


def _writers(
    source: LiveSource, select: RowFilter, notices: Notices, *, record: Path | None,
    folder: Path | None, tables: Sequence[str], output: Path | None, rotate_size: int | None,
    rotate_time: int | None, keep: int | None,
) -> list[Recorder | TableWriter | JsonLinesFile]:  # fmt: skip
    """The watchers that write packets, tables and JSON Lines to files."""
    from analysis.live.lines import JsonLinesFile
    from analysis.live.parquet_writer import DEFAULT, SECONDS, TableWriter
    from analysis.live.recorder import Recorder
    from analysis.live.rotation import Rotation
    from dissector.errors import DissectorError

    writers: list[Recorder | TableWriter | JsonLinesFile] = []
    rolling = Rotation(rotate_size, rotate_time, keep)
    if folder:
        rolls = Rotation(rotate_size, rotate_time or SECONDS, keep)
        chosen = chosen_tables(tables or DEFAULT)
        writers.append(TableWriter(folder, rolls, notices.show, chosen))
    lines = JsonLinesFile(output, select, rolling, notices.show) if output else None
    if lines:
        writers.append(lines)
    if record:
        try:
            recorder = Recorder(record, rolling, notices.show)
        except DissectorError:
            if lines:
                lines.discard()  # or the next attempt would find it
            raise
        source.tap = recorder.record
        writers.append(recorder)
    return writers


def _server(page: str, max_series: int) -> Callable[[LiveSource, Pipeline], Watcher]:
    """A function that starts the metrics server, and returns its watcher."""
    from analysis.extras import needed

    with needed("live"):
        from analysis.live.metrics import Metrics, serve
    from dissector.packets.block import LAST_PORT

    match = re.fullmatch(r"(?:(?P<host>[^][:]+|\[[^][]+\]):)?(?P<port>[0-9]+)", page)
    if match is None:
        raise click.UsageError(
            f"--metrics {page}: expected [ADDRESS:]PORT, for example 9464, 127.0.0.1:9464 or "
            "[::1]:9464"
        )
    digits = match["port"].lstrip("0")
    if not digits or len(digits) > len(str(LAST_PORT)) or int(digits) > LAST_PORT:
        raise click.UsageError(f"--metrics {page}: choose a port from 1 to {LAST_PORT}")
    host, port = (match["host"] or "127.0.0.1").strip("[]"), int(digits)

    def served(source: LiveSource, capture: Pipeline) -> Watcher:
        metrics = Metrics(source, capture, max_series)
        serve(metrics, host, port)
        return metrics

    return served


def _screen_class() -> type[LiveBrowser]:
    """The class of the screen. Also imports what it needs, before privileges are dropped."""
    from analysis.extras import needed
    from analysis.startup import allow_pandas

    allow_pandas()
    with needed("live"):
        from analysis.browse.live_app import LiveBrowser
    from analysis.diagnosis.catalog import limits
    from analysis.diagnosis.run import DIAGNOSIS_TABLES, diagnosed
    from analysis.sql.query import no_tables

    diagnosed(no_tables(DIAGNOSIS_TABLES), limits({}))
    return LiveBrowser


def _status(source: LiveSource, capture: Pipeline, notices: Notices) -> str:
    """The status line of the full-screen interface."""
    dropped = sum(source.dropped().values())
    drops = f", {dropped:,} dropped" if dropped else ""
    latest = f"  {notices.messages[-1]}" if notices.messages else ""
    return f"{capture.packets:,} packets{drops}, {capture.in_flight:,} in flight{latest}"


def _again(
    origin: Origin, *, record: Path | None, rotate_size: int | None, rotate_time: int | None,
    **_: Any,
) -> Command:  # fmt: skip
    """A function from a command, for example ``export --table errors``, to the command line that
    runs it on the written or read capture file; None if there is no such file."""
    from analysis.display.terminal import shell_files

    name = str(record) if record else origin.pipe
    if record and (rotate_size or rotate_time):
        name = f"{escape(str(record.with_suffix('')))}-*{escape(record.suffix)}"
    is_there = record is not None or (origin.is_file and name != "-")

    def command(text: str) -> str | None:
        verb, _, options = text.partition(" ")
        words = ["kafka-dissector", verb, shell_files([name or ""]), options]
        return " ".join(filter(None, words)) if is_there else None

    return command

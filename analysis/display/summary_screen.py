"""The screen of a summary: problems first, each with the command that shows more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import starmap
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from analysis.display.listing import ALWAYS, OPTIONAL, Column, Listing
from analysis.display.presentation import names
from analysis.display.terminal import (
    EMPTY,
    counted,
    duration_text,
    excerpt,
    first_three,
    printable,
    size_text,
    span_text,
    time_text,
    zone_name,
)
from analysis.kafka.errors import error_name
from analysis.kafka.normal import waiting_apis
from analysis.names.addresses import endpoint
from analysis.summary.counts import Summary
from analysis.summary.results import Totals
from dissector.packets.paths import input_name
from dissector.problems import (
    DROPPED,
    FAILED_HANDSHAKE,
    FILE_KINDS,
    LATE_SECRETS,
    UNDECRYPTED,
    UNREADABLE,
    UNUSED_SECRETS,
)

Row: TypeAlias = Mapping[str, Any]
Cells: TypeAlias = tuple[Column, Callable[[Row], Text]]
"""A column, and a function from a row to its cell."""

MOST: Final = 10
"""Maximum number of rows of one kind; the number of further rows follows."""

Command: TypeAlias = Callable[[str], str | None]
"""From a command, for example ``export --table errors``, to its command line on the same capture;
None if there is no file to read."""

ALL_CLIENTS: Final = "clients"
"""Lists all clients, also those that the summary omits."""
ALL_REQUESTS: Final = "latency --by api,api_version"
"""The same for requests."""
NO_COUNTS: Final[Mapping[str, int]] = MappingProxyType({})
_ENCRYPTED: Final = ("ESP", "WireGuard", "MACsec")
"""Names of layers that are usually encrypted."""
_FAILURES: Final = "network --show failures"
"""Lists connections that fail, also in the TLS handshake."""


def screen(
    summary: Summary, name: str, packets: int | None, command: Command, *, has_keylog: bool = False,
    note: str = "", without_tcp: Mapping[str, int] = NO_COUNTS, only_segments: bool = False,
) -> Iterator[RenderableType]:  # fmt: skip
    """The parts of the screen, from the top.

    `packets`: number of packets of any kind, if known. `has_keylog`: a key log was given. `note`:
    the filter of the exchanges, if there is one. `without_tcp`: see `Capture`. `only_segments`: the
    input consists of log segments.
    """
    if only_segments:
        yield from _log_segments(summary, name, command)
        return
    totals = summary.selected_totals() if note else summary.totals()
    files = list(_files(summary))
    failed = summary.failed_connections()
    attempts = list(_failed(failed, totals, command))
    handshakes = list(_failed_handshakes(summary, command))
    has_packets = packets is not None and not note
    coverage = _coverage(
        summary, totals, _attempts(failed), command("encrypted") if has_packets else None,
        has_keylog=has_keylog,
    )  # fmt: skip
    unread = [*files, *coverage]
    yield Text(printable(name), "bold")
    yield from _span(summary, totals, None if note else packets)
    if note:
        yield Text(printable(note), "bold")
    if summary.exchanges:
        wrong = [*attempts, *handshakes, *_wrong(summary, totals, command)]
        diagnose = command("diagnose")
        wrong = wrong or [_good(totals, is_whole=not files, is_diagnosed=bool(diagnose))]
        yield from _section("What is wrong", _led([*unread, *wrong], diagnose))
        yield from _section("Normal unless frequent", _normal(summary, totals, command))
        yield from _section("Clients", _led(_clients(summary), command(ALL_CLIENTS)))
        yield from _section("Requests", _led(_requests(summary), command(ALL_REQUESTS)))
    elif not note:
        causes = _led([*attempts, *handshakes], command("diagnose"))
        yield from _nothing(totals, [*unread, *causes], without_tcp)
    yield from _section("Log segments", _partitions(summary, command))
    yield from _section("What could not be read", _unread(summary, command))


def _log_segments(summary: Summary, name: str, command: Command) -> Iterator[RenderableType]:
    """The parts of the screen for log segments, which contain no requests or responses."""
    yield Text(printable(name), "bold")
    yield Text("Log segments contain no requests or responses.")
    yield from _files(summary)
    yield from _section("Partitions", _partitions(summary, command))
    yield from _section("What could not be read", _unread(summary, command))


def _partitions(summary: Summary, command: Command) -> Iterator[RenderableType]:
    """The partitions of log segments; nothing without any."""
    partitions = _listed(
        summary.logs(),
        _text_column("topic", "topic"),
        _number_column("partition", "partition"),
        _number_column("batches", "count"),
        _number_column("records", "record_count"),
        _number_column("bytes", "bytes"),
        _number_column("first offset", "base_offset", OPTIONAL),
        _number_column("last offset", "last_offset", OPTIONAL),
    )
    return _led(partitions, command("records"))


def _section(title: str, parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """A heading and its parts; nothing without parts."""
    for index, part in enumerate(parts):
        if not index:
            yield Text(f"\n{title}", "bold")
        yield _indented(part)


def _span(summary: Summary, totals: Totals, packets: int | None) -> Iterator[RenderableType]:
    if totals.first_time is not None and totals.last_time is not None:
        yield Text(
            f"{span_text(totals.first_time, totals.last_time)} {zone_name()}, "
            f"{duration_text(totals.last_time - totals.first_time)}"
        )
    connections = counted(sum(totals.protocols.values()), "connection")
    if set(totals.protocols) - {"kafka"}:
        kinds = (f"{count:,} {printable(kind)}" for kind, count in totals.protocols.items())
        connections += f" ({', '.join(kinds)})"
    counts = [] if packets is None else [counted(packets, "packet")]
    counts += [connections, f"{size_text(totals.bytes)} of payload"]
    yield Text(", ".join([*counts, counted(summary.exchanges, "exchange")]))


def _nothing(
    totals: Totals, unread: Sequence[RenderableType], without_tcp: Mapping[str, int]
) -> Iterator[RenderableType]:
    yield Text("\nNo Kafka request or response was found.", "bold")
    if not totals.protocols:
        yield Text("No packet contains TCP, directly or in a supported encapsulation.")
        yield from _others(without_tcp)
    yield from unread


def _others(without_tcp: Mapping[str, int]) -> Iterator[RenderableType]:
    """What the packets of a capture without TCP contain."""
    layers = sorted(without_tcp, key=lambda layer: (-without_tcp[layer], layer))
    further = sum(without_tcp[layer] for layer in layers[MOST:])
    for layer in layers[:MOST]:
        yield _indented(Text(f"{counted(without_tcp[layer], 'packet')}: {layer}"))
    if further:
        yield _indented(Text(f"{counted(further, 'packet')}: others"))
    if any(name in layer for layer in layers for name in _ENCRYPTED):
        yield Text(
            "Encrypted packets cannot be read. Capture on the interface of the tunnel, such as "
            "wg0, or in front of it."
        )


def _files(summary: Summary) -> Iterator[RenderableType]:
    """Files that could not be read, or not wholly, and packets that the capture dropped."""
    for row in summary.problems():
        if row["kind"] == UNREADABLE:
            yield _finding(counted(row["count"], "file"), f"not read: {excerpt(row['detail'])}")
        elif row["kind"] in FILE_KINDS:
            is_one = row["count"] == 1
            parts = "Part of a file" if is_one else f"{row['count']:,} parts of files"
            file = f"{input_name(row['capture'])}: " if row["capture"] else ""
            first = excerpt(f"{file}{row['detail']}")
            yield _finding(parts, f"could not be read{':' if is_one else '; the first:'} {first}")
        elif row["kind"] == DROPPED:
            dropped = counted(row["count"], "packet")
            yield _finding(dropped, "dropped by the capture: requests may be missing")


def _good(totals: Totals, *, is_whole: bool, is_diagnosed: bool) -> Text:
    """The text for a capture without problems, limited to connections that could be read.

    `is_whole`: whether all files could be read, and the capture dropped no packet. `is_diagnosed`:
    whether the command that finds the causes of slow requests follows.
    """
    connections = sum(totals.protocols.values())
    if totals.one_sided or not is_whole:
        return Text("Nothing else in the traffic that could be read.")
    good = "no error, no throttling, every request answered."
    if totals.read < connections:
        return Text(f"In the {totals.read:,} of {connections:,} connections that were read: {good}")
    slow = " Requests may still be slow; diagnose finds the causes." if is_diagnosed else ""
    return Text.assemble((good.capitalize(), "green"), slow)


def _coverage(
    summary: Summary, totals: Totals, failed: int, encrypted: str | None, *, has_keylog: bool
) -> Iterator[RenderableType]:
    """The part of the traffic that could be read, if not all, and how to read more.

    `failed`: number of connections that were not established. `encrypted`: the command that
    estimates response times of encrypted connections.
    """
    if totals.unread:
        whole = counted(totals.read + totals.unread, "connection")
        only = "Only " if totals.read else ""
        yield Text.assemble((f"{only}{totals.read:,} of {whole}", "bold red"), " could be read")
    if totals.failed_tls:
        yield _indented(Text(f"{totals.failed_tls:,} did not complete the TLS handshake"))
    if hidden := totals.protocols.get("tls", 0) - totals.failed_tls:
        hint = _why_encrypted(summary, has_keylog=has_keylog)
        yield _indented(Text(f"{hidden:,} {_are(hidden)} encrypted with TLS: {hint}"))
        yield from map(_indented, _lead(encrypted))
    if totals.unknown:
        ports = ", ".join(map(str, totals.unknown_ports[:MOST]))
        yield _indented(
            Text(
                f"{totals.unknown:,} {_are(totals.unknown)} of an unknown protocol, with port "
                f"{ports}: if a Kafka broker listens there, use --port PORT"
            )
        )
    silent = totals.protocols.get("unknown", 0) - totals.unknown - failed
    if silent and totals.read:
        yield Text(f"{counted(silent, 'connection')} without any payload", "dim")
    if totals.one_sided:
        yield Text.assemble(
            (counted(totals.one_sided, "connection"), "bold red"),
            " with packets in only one direction: latencies and errors are missing",
        )


def _why_encrypted(summary: Summary, *, has_keylog: bool) -> str:
    """The most frequent reason why these connections are not decrypted, or what to do."""
    for row in summary.problems():
        if row["detail"] in (UNUSED_SECRETS, LATE_SECRETS):
            return str(row["detail"])
        if has_keylog and row["kind"] in UNDECRYPTED and row["kind"] not in FAILED_HANDSHAKE:
            return UNDECRYPTED[row["kind"]]
    return UNDECRYPTED["tls_no_keys"] if has_keylog else "use --keylog FILE"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _attempts(failed: Sequence[Row]) -> int:
    return sum(row["refused"] + row["without_reply"] for row in failed)


def _failed_handshakes(summary: Summary, command: Command) -> Iterator[RenderableType]:
    """Reasons of failed TLS handshakes."""
    if rows := summary.failed_handshakes():
        yield _finding(_total(rows, "TLS handshake"), "failed")
        reason = (Column("reason"), lambda row: _text(row["reason"]))
        reasons = _listed(rows, _number_column("count", "count"), reason)
        yield from _details(reasons, command(_FAILURES))


def _failed(failed: Sequence[Row], totals: Totals, command: Command) -> Iterator[RenderableType]:
    """Endpoints that refuse connections, or do not reply."""

    def broker(row: Row) -> Text:
        return _text(names().shown(endpoint(row["broker_ip"], row["broker_port"])))

    if not failed:
        return
    yield _finding(counted(_attempts(failed), "connection"), "could not be established")
    rows = _listed(
        failed,
        (Column("broker"), broker),
        _number_column("refused (RST)", "refused"),
        _number_column("without a reply", "without_reply"),
        *_span_columns(totals),
    )
    yield from _details(rows, command(_FAILURES))


def _wrong(summary: Summary, totals: Totals, command: Command) -> Iterator[RenderableType]:
    if errors := summary.unexpected_errors():
        yield _finding(_total(errors, "error"), "in responses")
        yield from _details(_errors(errors, totals, "red"), command("errors"))
    if throttled := summary.throttled():
        longest = max(row["longest"] for row in throttled)
        text = f"throttled by a quota, the longest for {longest:,} ms"
        yield _finding(_total(throttled, "response"), text)
        yield from _details(_throttled(throttled), command("throttle"))
    if unanswered := summary.never_answered():
        incomplete = sum(row["incomplete"] for row in unanswered)
        text = "without a response"
        if incomplete:
            text += f"; the capture may lack {counted(incomplete, 'response')}"
        yield _finding(_total(unanswered, "request"), text)
        columns = {"client id": "client_id", "API": "api"}
        yield from _details(_counts(unanswered, totals, columns), command("unanswered"))
    statuses = summary.statuses()
    for status, noun, text in (
        ("undecoded", "exchange", "that could not be decoded"),
        ("request_missing", "response", "to a request that is not in the capture"),
    ):
        if count := statuses.get(status, 0):
            yield _finding(counted(count, noun), text)
            yield from _details((), command(f"show --only {status}"))
    if totals.lost_bytes:
        lossy = counted(totals.lossy, "connection")
        yield _finding(size_text(totals.lost_bytes), f"missing from the capture, in {lossy}")
        yield from _details((), command("quality"))


def _normal(summary: Summary, totals: Totals, command: Command) -> Iterator[RenderableType]:
    """Normal operation of Kafka that may be of interest."""
    if errors := summary.normal_errors():
        yield Text(f"{_total(errors, 'error')} that clients handle themselves")
        yield from _details(_errors(errors, totals), command("errors"))
    if count := summary.in_flight:
        yield Text(f"{counted(count, 'request')} in flight when the capture or connection ended")
        yield from _details((), command("unanswered"))
    if rebalances := summary.rebalances():
        total = _total(rebalances, "rebalance")
        yield Text(f"{total} of groups that rebalanced more than once")
        columns = {"group": "group_id", "type": "group_type"}
        yield from _details(_counts(rebalances, totals, columns), command("groups"))


def _errors(errors: Sequence[Row], totals: Totals, style: str = "") -> Iterator[RenderableType]:
    def name(row: Row) -> Text:
        return Text(printable(error_name(row["error"], row["error_code"])), style)

    columns = {"API": "api", "topic": "topic"}
    return _counts(errors, totals, columns, (Column("error"), name))


def _throttled(rows: Sequence[Row]) -> Iterator[RenderableType]:
    return _listed(
        rows,
        _number_column("count", "count"),
        _text_column("client id", "client_id"),
        _text_column("API", "api"),
        _number_column("total ms", "total", OPTIONAL),
        _number_column("longest ms", "longest"),
    )


def _counts(
    rows: Sequence[Row], totals: Totals, columns: Mapping[str, str], *before: Cells
) -> Iterator[RenderableType]:
    """Rows with a count and a time span. `columns`: names of columns of texts, by their heads;
    `before`: columns before them."""
    texts = starmap(_text_column, columns.items())
    return _listed(rows, _number_column("count", "count"), *before, *texts, *_span_columns(totals))


def _clients(summary: Summary) -> Iterator[RenderableType]:
    def addresses(row: Row) -> Text:
        return _text(first_three([*row["addresses"]], names().shown))

    return _listed(
        [*map(asdict, summary.clients())],
        _text_column("client id", "client_id"),
        _text_column("software", "software"),
        (Column("address", rank=OPTIONAL), addresses),
        _number_column("connections", "connections", OPTIONAL),
        _number_column("requests", "requests"),
        (Column("errors", number=True), lambda row: _bad(row["errors"])),
    )


def _requests(summary: Summary) -> Iterator[RenderableType]:
    apis = summary.apis()
    yield from _listed(
        [*map(asdict, apis)],
        _text_column("API", "api"),
        (Column("version", number=True, rank=5), lambda row: _number(row["version"])),
        _number_column("requests", "count", 1),
        (Column("errors", number=True, rank=3), lambda row: _bad(row["errors"])),
        (Column("throttled", number=True, rank=OPTIONAL), lambda row: _bad(row["throttled"])),
        (Column("p50 ms", number=True, rank=2), lambda row: _ms(row["p50_ms"])),
        (Column("p99 ms", number=True, rank=4), lambda row: _ms(row["p99_ms"])),
        (Column("max ms", number=True, rank=6), lambda row: _ms(row["max_ms"])),
    )
    polls = sorted({use.api for use in apis[:MOST]} & waiting_apis())
    if polls:
        names = " and ".join(filter(None, (", ".join(polls[:-1]), polls[-1])))
        text = f"The latency of {names} includes waiting at the broker; `latency` excludes it."
        yield Text(text, "dim")


def _unread(summary: Summary, command: Command) -> Iterator[RenderableType]:
    if problems := summary.problems():
        yield from _listed(
            problems,
            _number_column("count", "count"),
            _number_column("bytes", "bytes"),
            _text_column("stage", "stage", OPTIONAL),
            _text_column("kind", "kind"),
            _text_column("first detail", "detail"),
        )
        yield from _lead(command("export --table problems"))


def _listed(rows: Sequence[Row], *columns: Cells) -> Iterator[RenderableType]:
    """A listing of the first `MOST` rows, and the number of further rows."""
    if rows:
        cells = [[cell(row) for row in rows[:MOST]] for _, cell in columns]
        yield Listing([column for column, _ in columns], cells)
    if len(rows) > MOST:
        yield Text(f"and {len(rows) - MOST:,} more", "dim")


def _number_column(head: str, name: str, rank: int = ALWAYS) -> Cells:
    return Column(head, number=True, rank=rank), lambda row: _number(row[name])


def _text_column(head: str, name: str, rank: int = ALWAYS) -> Cells:
    """A column of texts of the capture."""
    return Column(head, rank=rank), lambda row: _text(row[name])


def _span_columns(totals: Totals) -> Iterator[Cells]:
    """Columns of the first and last time; with dates if the capture spans several days."""
    ends = [time_text(time or 0, 3)[:10] for time in (totals.first_time, totals.last_time)]
    begin = 0 if ends[0] != ends[1] else 11
    yield Column("from", rank=OPTIONAL), lambda row: Text(time_text(row["first"], 3)[begin:])
    yield Column("to", rank=OPTIONAL), lambda row: Text(time_text(row["last"], 3)[begin:])


def _finding(count: str, text: str) -> Text:
    return Text.assemble((count, "bold red"), f" {text}")


def _total(rows: Sequence[Row], thing: str) -> str:
    return counted(sum(row["count"] for row in rows), thing)


def _details(parts: Iterable[RenderableType], command: str | None) -> Iterator[RenderableType]:
    """The parts below a finding, and the command that shows more, if there is one."""
    yield from map(_indented, [*parts, *_lead(command)])


def _lead(command: str | None) -> Iterator[Text]:
    if command is not None:
        yield Text.assemble(("more: ", "dim"), (command, "cyan"), no_wrap=True)


def _led(parts: Iterable[RenderableType], command: str | None) -> Iterator[RenderableType]:
    """The parts, followed by the command that shows more; nothing without parts."""
    listed = list(parts)
    yield from listed
    if listed:
        yield from _lead(command)


def _indented(part: RenderableType) -> RenderableType:
    if isinstance(part, Text) and part.no_wrap:
        return Text.assemble("  ", part, no_wrap=True)
    return Padding(part, (0, 0, 0, 2), expand=False)


def _text(value: str | None) -> Text:
    """A text of the capture, or a dash."""
    if value:
        return Text(excerpt(value))
    return Text("-" if value is None else EMPTY, "dim")


def _number(value: int | None) -> Text:
    return Text("-", "dim") if value is None else Text(f"{value:,}")


def _ms(value: float | None) -> Text:
    return Text("-", "dim") if value is None else Text(f"{value:,.3f}")


def _bad(count: int) -> Text:
    return Text(f"{count:,}", "red" if count else "dim")

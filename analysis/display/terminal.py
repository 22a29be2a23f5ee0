"""Text for people, on a terminal or in a pipe.

Client ids, topics and error messages come from the wire. `printable` escapes control characters, so
that none of them moves a cursor. rich gets them as `Text`, without markup. A pipe gets plain text:
no boxes, no broken or truncated lines, no trailing spaces.

A terminal gets colours, unless the environment variable NO_COLOR has a value. A pipe gets none,
unless FORCE_COLOR has a value.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, tzinfo
from typing import TYPE_CHECKING, Any, Final

from analysis.display import presentation
from dissector.redaction import without_credentials

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from dissector.pipeline import Progress

PIPE_WIDTH: Final = 10_000
"""Width of lines in a pipe; more than any line needs, so that none is broken."""

EMPTY: Final = '""'
"""An empty text in a table, such as the client id of a client that sets none."""
EXCERPT: Final = 249
"""Maximum number of characters of a name. A topic has no more, and may differ from others only at
its end (Topic.MAX_NAME_LENGTH). A client id may have 32,767."""

SIZEABLE: Final = 16 << 20
"""Bytes of input from which on progress is shown; smaller input is read in a moment."""


def printable(text: str) -> str:
    """The text, with non-printable characters escaped as in Python: ``\\x1b``, ``\\u2028``.

    A byte of a file name that is not UTF-8 is a lone surrogate in Python; it is shown as ``\\xff``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:x}"
    return character.encode("unicode_escape").decode()


def shell_words(words: Iterable[str]) -> str:
    """The words as part of a command line, to be copied to a shell.

    A word with non-printable characters is quoted as Bash and Zsh read it: ``$'a\\xff.pcap'``.
    """
    return " ".join(map(_shell_word, words))


def shell_files(names: Iterable[str]) -> str:
    """Names of files as part of a command line: none of them looks like an option. Credentials in
    URLs are redacted."""
    shown = map(without_credentials, names)
    return shell_words(f"./{name}" if name.startswith("-") else name for name in shown)


def _shell_word(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(map(_shell_escaped, word))}'"


def _shell_escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


def excerpt(text: str, longest: int = EXCERPT) -> str:
    """The text, `printable`; truncated, with its length, if it has more than `longest`."""
    if len(text) <= longest:
        return printable(text)
    return f"{printable(text[:EXCERPT])}… ({len(text):,} characters)"


def first_three(names: Sequence[str], text: Callable[[str], str] = str) -> str:
    """The `text` of three names, and the number of further ones."""
    suffix = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(map(text, names[:3])) + suffix


def time_text(ns: int, digits: int = 9) -> str:
    """A time, in ns since 1970, as ``2026-11-21 03:10:11.123456789``, in `zone_name`."""
    return _text(ns, presentation.zone())[: 20 + digits]


def utc_text(ns: int) -> str:
    """A time, in ns since 1970, as `export` writes it: ``2026-11-21T03:10:11.123456789Z``."""
    return f"{_text(ns, UTC).replace(' ', 'T')}Z"


def _text(ns: int, zone: tzinfo) -> str:
    second, fraction = divmod(ns, 10**9)
    whole = datetime.fromtimestamp(second, zone).strftime("%Y-%m-%d %H:%M:%S")
    return f"{whole}.{fraction:09d}"


def local_date(ns: int) -> date:
    """The date of a time, in ns since 1970, in `zone_name`."""
    return datetime.fromtimestamp(ns // 10**9, presentation.zone()).date()


def zone_name() -> str:
    """The name of the time zone of printed times: ``UTC``, ``Europe/Berlin``."""
    return str(presentation.zone())


def moment_text(ns: int) -> str:
    """A time to the millisecond, and its zone: ``2026-11-21 03:10:11.123 UTC``."""
    return f"{time_text(ns, 3)} {zone_name()}"


def duration_text(ns: int) -> str:
    """A duration: ``14.301 s``, ``3 min 20 s``, ``26 h 5 min``."""
    seconds = ns / 1e9
    if seconds < 60:
        return f"{seconds:.3f} s"
    minutes, second = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {second} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size_text(bytes: int) -> str:
    """A size as ``415 bytes``, ``35.2 kB``, ``1.2 GB``; powers of 1,000."""
    if bytes < 1000:
        return counted(bytes, "byte")
    size = float(bytes)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:,.1f} TB"


def span_text(first: int, last: int) -> str:
    """A time span, in ns since 1970; the day appears once if both ends share it."""
    begin, end = time_text(first, 3), time_text(last, 3)
    return f"{begin} to {end[11:] if begin[:10] == end[:10] else end}"


def counted(number: int, thing: str) -> str:
    """``1 request``, ``2,000 requests``, ``2 batches``."""
    plural = "es" if thing.endswith("ch") else "s"
    return f"{number:,} {thing}{'' if number == 1 else plural}"


def has_colours() -> bool:
    """Whether standard output gets colours."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def write(parts: Iterable[RenderableType], *, pager: bool = False, is_wide: bool = False) -> None:
    """Write to standard output, in the width of the terminal.

    `pager`: use the user's pager for output longer than the screen. `is_wide`: lines may exceed the
    width of the terminal.
    """
    if not sys.stdout.isatty():
        sys.stdout.writelines(plain(parts, colours=has_colours()))
        return
    if not (pager or is_wide):
        _write(_console(), parts)
        return
    text = _captured(_console(width=PIPE_WIDTH if is_wide else None), parts)
    if not (pager and _is_too_large(text, is_wide) and _paged(text, is_wide)):
        sys.stdout.write(text)


def _is_too_large(text: str, is_wide: bool) -> bool:
    """Whether the text is larger than the screen; False if its size is unknown."""
    from rich.text import Text

    width, height = os.get_terminal_size(sys.stdout.fileno())
    if not (width and height):
        return False
    lengths = [Text.from_ansi(line).cell_len for line in text.splitlines()]
    if is_wide and max(lengths, default=0) > width:
        return True
    return sum(max(-(-length // width), 1) for length in lengths) >= height


def _paged(text: str, is_wide: bool) -> bool:
    """Show the text in the pager of PAGER, or less; False if there is no pager."""
    import subprocess

    command = shlex.split(os.environ.get("PAGER", "less"))
    if not command or command == ["cat"] or os.environ.get("TERM", "dumb") == "dumb":
        return False
    # As in git: quit if it fits, show colours, leave the text on the screen. S: scroll sideways.
    environment = {"LESS": "FRSX" if is_wide else "FRX"} | os.environ
    try:
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    except OSError:
        return False
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pager
    try:
        pager.communicate(text.encode(errors="backslashreplace"))
    except BrokenPipeError:  # the user has quit the pager
        pager.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return True


def plain(parts: Iterable[RenderableType], *, colours: bool = False) -> Iterator[str]:
    """The text for a pipe or a file, in pieces."""
    console = _console(width=PIPE_WIDTH, color_system="standard" if colours else None)
    for part in parts:
        for piece in part.pieces(PIPE_WIDTH) if hasattr(part, "pieces") else [part]:
            # A console takes more than ten times as long for a text, and there may be a million.
            if colours or not hasattr(piece, "plain"):
                yield _captured(console, [piece])
            else:
                yield _stripped(f"{piece.plain}\n")


def _console(**settings: Any) -> Console:
    """A console that takes text as it is."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False, **settings)


def _captured(console: Console, parts: Iterable[RenderableType]) -> str:
    """What a console would write, without spaces at the ends of lines."""
    with console.capture() as captured:
        _write(console, parts)
    return _stripped(captured.get())


def _stripped(text: str) -> str:
    """Whole lines without spaces at their ends."""
    return "".join(f"{line.rstrip()}\n" for line in text.split("\n")[:-1])


def _write(console: Console, parts: Iterable[RenderableType]) -> None:
    for part in parts:
        # Lines to be copied in one piece are wrapped by the terminal, not here.
        console.print(part, soft_wrap=getattr(part, "no_wrap", False) is True)


@contextmanager
def progress(wanted: bool = True) -> Iterator[Progress | None]:
    """A context for a function that shows progress on standard error; None without a terminal."""
    if not (wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    bar = Progress(
        BarColumn(), DownloadColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    task = bar.add_task("", total=None)

    def show(read: int, total: int | None) -> None:
        if total is None or total >= SIZEABLE:
            bar.update(task, completed=read, total=total)
            if read == total:  # results may be printed before the context ends
                bar.stop()
            else:
                bar.start()

    try:
        yield show
    finally:
        bar.stop()

"""Files that an installation puts into its folder `share`: a manual page, completions of shells.

Both come from the commands themselves. `tools.generate_docs` writes them.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from analysis.answers import ANSWERS
from analysis.cli import COMMANDS, app
from tools.shown_output import ROOT

NAME: Final = "kafka-dissector"
COMPLETIONS: Final = {
    "bash": f"bash-completion/completions/{NAME}",
    "zsh": f"zsh/site-functions/_{NAME}",
    "fish": f"fish/vendor_completions.d/{NAME}.fish",
}
COMMON: Final = 5
"""Commands from which on an option is described once for all."""
EXIT_STATUSES: Final = {
    "0": "success",
    "1": "the input cannot be read, or the output cannot be written",
    "2": "usage error",
    "3": "--fail-on of diagnose or compare applies",
    "130": "interrupted by Ctrl-C",
    "141": "the reader of the output has closed the pipe",
}
ENVIRONMENT: Final = {
    "NO_COLOR": "A value turns colours off.",
    "FORCE_COLOR": "A value turns colours on in a pipe.",
    "PAGER": "The program that shows long output. Default: less.",
    "TMPDIR": "The folder for temporary files.",
}


def share_files() -> dict[Path, str]:
    """The text of each file, by its path."""
    share = ROOT / "share"
    files = {share / path: completion(shell) for shell, path in COMPLETIONS.items()}
    return files | {share / "man" / "man1" / f"{NAME}.1": manual_page()}


def completion(shell: str) -> str:
    complete = get_completion_class(shell)
    assert complete is not None
    return complete(app, {}, NAME, "_KAFKA_DISSECTOR_COMPLETE").source().strip() + "\n"


def manual_page() -> str:
    """The page in roff, for man(1)."""
    context = click.Context(app, info_name=NAME)
    commands = {name: app.get_command(context, name) for name in (*COMMANDS, *ANSWERS)}
    options = {name: _options(command, context) for name, command in commands.items() if command}
    counts = Counter(option for each in options.values() for option in each)
    common = [option for option, count in counts.items() if count >= COMMON]
    lines = [f'.TH KAFKA\\-DISSECTOR 1 "" "{NAME}"', ".SH NAME"]
    lines += [f"{_roff(NAME)} \\- {_roff(app.get_short_help_str())}"]
    lines += [".SH SYNOPSIS", f".B {_roff(NAME)}", "COMMAND [OPTIONS] CAPTURE..."]
    lines += [".SH DESCRIPTION", *_paragraphs(app.help)]
    for title, names in (("COMMANDS", COMMANDS), ("ANSWERS", tuple(ANSWERS))):
        lines.append(f".SH {title}")
        for name in names:
            lines += [f".SS {_roff(name)}", *_paragraphs(commands[name].help)]
            lines += _definitions(each for each in options[name] if each not in common)
    for title, definitions in (
        ("COMMON OPTIONS", common),
        ("EXIT STATUS", EXIT_STATUSES.items()),
        ("ENVIRONMENT", ENVIRONMENT.items()),
    ):
        lines += [f".SH {title}", *_definitions(definitions)]
    return "\n".join(lines) + "\n"


def _options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """The options of a command, and their texts."""
    inner = click.Context(command, context)
    records = [
        each.get_help_record(inner) for each in command.params if isinstance(each, click.Option)
    ]
    return [record for record in records if record]


def _paragraphs(text: str | None) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        yield ".PP"
        if paragraph.startswith("\b\n"):  # Click's mark of lines that keep their ends
            yield from (".nf", _roff(paragraph[2:]), ".fi")
        else:
            yield _roff(" ".join(paragraph.split()))


def _definitions(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, text in pairs:
        yield from (".TP", f"\\fB{_roff(term)}\\fR", _roff(" ".join(text.split())))


def _roff(text: str) -> str:
    """Text in which no character has a meaning for roff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return re.sub(r"^(?=[.'])", r"\\&", escaped, flags=re.MULTILINE)

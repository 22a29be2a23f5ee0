"""The answers about the selected exchanges: a list of names, and the rows of the selected one."""

from __future__ import annotations

from typing import Final, cast

import pyarrow as pa
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import OptionList, Static

from analysis.answers import ANSWERS
from analysis.browse.capture_source import CaptureSource
from analysis.browse.frame import Frame, job_is_cancelled
from analysis.browse.row_view import RowView
from analysis.browse.rows import Order, Rows, columns_of
from analysis.input.filters import Filter

PAUSE: Final = 0.2
"""Seconds that the cursor stays on a name before its answer is computed."""


class AnswersPane(Horizontal):
    """Names to the left, rows to the right."""

    DEFAULT_CSS = """
    AnswersPane > OptionList { width: 15; height: 1fr; border: none; background: $background; }
    AnswersPane > OptionList:focus { border: none; }
    AnswersPane > Vertical { border-left: solid $surface-lighten-2; }
    AnswersPane #question { height: auto; padding: 0 1; text-style: bold; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._names = list(ANSWERS)
        self._asked: tuple[CaptureSource, Filter] | None = None
        self._shown: tuple[CaptureSource, str, list[str]] | None = None
        self._delay: Timer | None = None

    def compose(self) -> ComposeResult:
        yield OptionList(*self._names, id="names", compact=True)
        with Vertical():
            yield Static(id="question")
            yield RowView(id="answer")

    @property
    def name_of_answer(self) -> str:
        """The selected answer."""
        return self._names[self.query_one("#names", OptionList).highlighted or 0]

    def request(self, source: CaptureSource, chosen: Filter) -> None:
        """Show the selected answer about the selected exchanges."""
        self._asked = source, chosen
        self._show()

    def on_option_list_option_highlighted(self) -> None:
        if self._delay:
            self._delay.stop()
        self._delay = self.set_timer(PAUSE, self._show)

    def on_option_list_option_selected(self) -> None:
        self.query_one("#answer").focus()

    def _show(self) -> None:
        if self._asked is None:
            return
        source, chosen = self._asked
        name = self.name_of_answer
        if self._shown == (source, name, chosen.options):
            return
        self._shown = source, name, chosen.options

        def show(table: pa.Table) -> None:
            answer = ANSWERS[name]
            text = Text(answer.question)
            if not len(table):
                text.append(f"\nNo {answer.rows} in the selected exchanges.", "dim")
            self.query_one("#question", Static).update(text)
            declared = {column.name for column in answer.columns}
            leading = [column for column in table.column_names if column not in declared]
            names = dict.fromkeys(
                [*leading, *answer.essential, *answer.useful, *table.column_names]
            )
            table = table.select([each for each in names if each in table.column_names])
            batches = table.combine_chunks().to_batches()
            rows = Rows(batches, columns_of(table.schema) if batches else [])
            self.query_one("#answer", RowView).show(rows, rows.numbers, Order())

        app = cast(Frame, self.app)
        app.start(
            "answer",
            f"computing {name}",
            lambda: source.answer(name, chosen, job_is_cancelled()),
            show,
        )

"""`python -m tests.analysis.same_answers`: equal answers, wherever the tables come from.

For each recording and each answer, with each of its choices, the rows must be the same from

- the tables in memory,
- the tables on disk, which the command line uses,
- exported Parquet files,
- Spark DataFrames: the code of Spark's tasks, on rows in reverse order in the schema of Spark,
  or with ``--spark`` in a local session.

A job of Spark takes a second or more, however few its rows are. So `--together N` reads N
recordings as one capture.

Exit status 1 if any of them differ. This takes half an hour for all recordings, so the suite has a
sample: `test_answers_stored`, `test_input_exported` and `test_spark_answers`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from analysis.answers import ANSWERS, Answer
from analysis.frames import frame
from analysis.input.exported import ExportedTables
from analysis.spark import answers as spark_answers
from analysis.spark.schemas import to_spark, with_nanoseconds
from analysis.spark.session import session
from analysis.sql.query import connected, no_tables
from analysis.sql.stored import stored
from dissector.capture import open_capture
from tests.analysis.answering import ANSWER_TABLES
from tests.analysis.spark.sharding import exact
from tests.captures.recorded import RECORDINGS

Options = dict[str, Any]
Source = Callable[[Answer, Options], pd.DataFrame]


def variants(answer: Answer) -> Iterator[Options]:
    """The default options, and each other value of an option."""
    yield {}
    for option in answer.options:
        given = dict([option.needs]) if option.needs else {}
        for choice in option.choices[1:]:
            yield given | {option.name: choice}
        if type(option.default) is int:
            yield given | {option.name: 5}


@contextmanager
def in_tasks(rows: Mapping[str, pa.Table]) -> Iterator[Source]:
    """Answers by the code of Spark's tasks."""
    parts = (
        part
        for name, table in rows.items()
        for batch in table[::-1].to_batches()
        for part in spark_answers.pack(name, iter([to_spark(name, batch)]))
    )
    with stored(spark_answers._unpacked(parts), rows) as connection:

        def answered(answer: Answer, options: Options) -> pd.DataFrame:
            rows = answer.arrow(connection, **options)
            return exact(pa.table(with_nanoseconds(rows)), frame(rows))

        yield answered


@contextmanager
def in_session(rows: Mapping[str, pa.Table]) -> Iterator[Source]:
    """Answers in a local session of Spark."""
    spark = session("local[2]", {"spark.ui.showConsoleProgress": "false"})
    tables: Any = {
        name: spark.createDataFrame(
            pa.Table.from_batches([to_spark(name, whole_batch(table[::-1]))])
        )
        for name, table in rows.items()
    }

    def answered(answer: Answer, options: Options) -> pd.DataFrame:
        empty = answer.function(no_tables(answer.tables_for(options)), **options)
        result: Any = answer.function(tables, **options)
        return exact(result.toArrow(), empty)

    yield answered


def whole_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(table.to_struct_array().combine_chunks())


def differences(
    paths: Sequence[Path],
    on_spark: Callable[[Mapping[str, pa.Table]], AbstractContextManager[Source]],
) -> Iterator[str]:
    """What differs in a capture of these recordings."""
    names = ANSWER_TABLES
    rows = open_capture(paths).tables(names)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for name, table in rows.items():
            pa.parquet.write_table(table, Path(folder, f"{name}.parquet"))
        memory = stack.enter_context(connected(rows, names))
        disk = stack.enter_context(stored(open_capture(paths).stream(names), names))
        exported = stack.enter_context(stored(ExportedTables([folder]).stream(names), names))
        sources: dict[str, Source] = {
            "disk": lambda answer, options: answer.function(disk, **options),
            "parquet": lambda answer, options: answer.function(exported, **options),
            "spark": stack.enter_context(on_spark(rows)),
        }
        for answer in ANSWERS.values():
            for options in variants(answer):
                expected = answer.function(memory, **options)
                for source, answered in sources.items():
                    try:
                        pd.testing.assert_frame_equal(answered(answer, options), expected)
                    except AssertionError as error:
                        yield f"{answer.name} {options} from {source}: {error}"


def main() -> int:
    """1 if answers differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.analysis.same_answers")
    parser.add_argument("names", nargs="*", help="recordings; default: all")
    parser.add_argument("--spark", action="store_true", help="run Spark itself")
    parser.add_argument("--together", type=int, default=1, metavar="N", help="recordings at once")
    options = parser.parse_args()
    on_spark = in_session if options.spark else in_tasks
    wrong = 0
    recordings = [
        path for path in RECORDINGS if not options.names or path.name.split(".")[0] in options.names
    ]
    for paths in batched(recordings, options.together):
        unequal = [*differences(paths, on_spark)]
        wrong += len(unequal)
        names = ", ".join(path.name for path in paths)
        print("\n".join([f"{names}: {len(unequal)} differences", *unequal]), flush=True)
    return int(wrong > 0)


def batched(paths: Sequence[Path], size: int) -> Iterator[Sequence[Path]]:
    for start in range(0, len(paths), size):
        yield paths[start : start + size]


if __name__ == "__main__":
    sys.exit(main())

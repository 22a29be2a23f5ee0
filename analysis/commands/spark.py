"""``kafka-dissector spark``: write tables of many captures as Parquet with Spark."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from analysis.commands.common import (
    ALL,
    TABLE_NAMES,
    TABLES_OR_ALL,
    Input,
    chosen_tables,
    on_capture,
    processors,
)
from analysis.commands.options import Choice, named_command, on_secrets, output_option
from analysis.startup import allow_pandas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@named_command("spark")
@partial(on_capture, jobs="all processors", presents=False, filters=())
@click.option(
    "--table", "tables", type=Choice((*TABLE_NAMES, ALL)), metavar="NAME", multiple=True,
    default=("exchanges",), show_default=True,
    help=f"Write this table: {TABLES_OR_ALL}. May be repeated.",
)  # fmt: skip
@output_option(
    "-o", "--output", "path", metavar="DIR", required=True,
    help="Write each table to its own folder in DIR.",
)  # fmt: skip
@output_option(
    "--mode", type=Choice(("error", "overwrite")), default="error", show_default=True,
    help="Stop, or replace the table, if DIR contains it with other options.",
)  # fmt: skip
@click.option("--master", metavar="URL", help="Use this Spark master.  [default: on this machine]")
@click.option(
    "--conf", "settings", metavar="NAME=VALUE", multiple=True,
    help="Set a Spark property, as in spark-submit. May be repeated.",
)  # fmt: skip
@click.option(
    "--since", metavar="TIME", default="", help="Ignore packets before this time (ISO 8601, UTC)."
)
@click.option(
    "--until", metavar="TIME", default="",
    help="Ignore packets at or after this time (ISO 8601, UTC).",
)  # fmt: skip
@click.option(
    "--api", "apis", metavar="NAME", multiple=True,
    help="Write only rows of this API. May be repeated.",
)  # fmt: skip
@on_secrets
def command(
    source: Input, tables: tuple[str, ...], path: str, mode: str, master: str | None,
    settings: tuple[str, ...], since: str, until: str, apis: tuple[str, ...], show_secrets: bool,
) -> None:  # fmt: skip
    """Write tables as Parquet with Spark, partitioned by date.

    Use it for captures that one machine cannot read in time. The rows are the same as those of
    `export`.
    """
    properties = dict(map(_property, settings))
    allow_pandas()
    from analysis.extras import needed
    from analysis.spark.options import request
    from analysis.spark.output import Output
    from analysis.spark.session import on_this_machine
    from dissector.errors import DissectorError

    try:
        with needed("spark"):  # before the output folder, which fsspec finds
            import fsspec  # noqa: F401
            import pyspark  # noqa: F401
        options = request(
            source.captures, chosen_tables(tables), ports=source.ports, apis=apis,
            since=since or None, until=until or None, keylog=source.keylog,
            show_secrets=show_secrets, memory=source.memory << 20,
        )  # fmt: skip
        from analysis.spark.plan import opened

        captures = opened(options)  # before Spark starts, which takes seconds
        cores = source.jobs or processors()
        with (
            Output(path, options, mode).opened() as output,
            _started(master or on_this_machine(cores), properties) as spark,
        ):
            from analysis.spark import job

            for name, rows, folder in job.run(spark, options, output, captures):
                click.echo(f"{name}: {rows:,} rows in {folder}")
        source.note(captures.problems)
    except DissectorError as error:
        raise click.ClickException(str(error)) from error


@contextmanager
def _started(master: str, properties: dict[str, str]) -> Iterator[SparkSession]:
    """Spark while the context lasts. `properties`: of the session, besides its progress bar."""
    from analysis.spark.session import session, stop

    # After Ctrl-C, Py4J logs the exceptions that it raises, with tracebacks.
    logging.getLogger().disabled = True
    bar = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    spark = session(master, bar | properties)
    try:
        yield spark
    except KeyboardInterrupt:
        spark.sparkContext.setLogLevel("OFF")  # tasks that end now are no errors
        click.echo("The same command continues from the completed runs.", err=True)
        raise
    finally:
        stop(spark)


def _property(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there:
        raise click.UsageError(f"--conf {text}: expected NAME=VALUE")
    return name, value

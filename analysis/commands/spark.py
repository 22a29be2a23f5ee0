"""``kafka-dissector spark``: tables of any amount of captures as Parquet, by a Spark job."""

from __future__ import annotations

import sys

import click

from analysis.commands.common import (
    SHOW_SECRETS,
    TABLE_NAMES,
    Input,
    allow_pandas,
    on_capture,
    processors,
)


@click.command("spark")
@on_capture
@click.option(
    "--table",
    "tables",
    type=click.Choice(TABLE_NAMES),
    metavar="NAME",
    multiple=True,
    default=("exchanges",),
    show_default=True,
    help=f"Which table; may be repeated: {', '.join(TABLE_NAMES)}.",
)
@click.option(
    "-o",
    "--output",
    "path",
    metavar="DIR",
    required=True,
    help="Folder to write to, in which each table has a folder of its own.",
)
@click.option(
    "--mode",
    type=click.Choice(("error", "overwrite")),
    default="error",
    show_default=True,
    help="If a table exists in DIR: stop, or replace it when the new one is complete.",
)
@click.option("--master", metavar="URL", help="Where Spark is.  [default: on this machine]")
@click.option(
    "--conf",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set a property of Spark, as spark-submit does; may be repeated.",
)
@click.option("--since", metavar="TIME", default="", help="Packets from then on; ISO 8601, UTC.")
@click.option("--until", metavar="TIME", default="", help="And only those before.")
@click.option("--api", "apis", metavar="NAME", multiple=True, help="Of these APIs only.")
@click.option("--show-secrets", is_flag=True, help=SHOW_SECRETS)
def command(
    source: Input, tables: tuple[str, ...], path: str, mode: str, master: str | None,
    settings: tuple[str, ...], since: str, until: str, apis: tuple[str, ...], show_secrets: bool,
) -> None:  # fmt: skip
    """Write tables as Parquet, by date and API, on Spark.

    For more captures than one machine reads in time. The rows are those of export.
    """
    properties = dict(map(_property, settings))
    allow_pandas()
    from analysis.spark.options import request
    from analysis.spark.output import Output
    from analysis.spark.session import on_this_machine, session
    from dissector.errors import DissectorError

    try:
        asked = request(
            source.captures, tables, ports=source.ports, apis=apis, since=since, until=until,
            keylog=source.keylog, show_secrets=show_secrets, memory=source.memory << 20,
        )  # fmt: skip
        with Output(path, asked.tables, mode).opened() as output:
            bar = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
            spark = session(
                master or on_this_machine(source.jobs or processors()), bar | properties
            )
            from analysis.spark import job

            try:
                job.check(spark, output)
                for name, rows, folder in job.run(spark, asked, output):
                    click.echo(f"{name}: {rows:,} rows in {folder}")
            finally:
                spark.stop()
    except DissectorError as error:
        raise click.ClickException(str(error)) from error


def _property(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there:
        raise click.UsageError(f"--conf {text}: give NAME=VALUE")
    return name, value

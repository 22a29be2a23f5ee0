"""``kafka-dissector spark``: tables of any amount of captures as Parquet, by a Spark job."""

from __future__ import annotations

import sys

import click

from analysis.commands.common import SHOW_SECRETS, TABLE_NAMES, Input, allow_pandas, on_capture


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
    metavar="DIR",
    required=True,
    help="Folder to write to, in which each table has a folder of its own.",
)
@click.option("--master", metavar="URL", help="Where Spark is.  [default: on this machine]")
@click.option("--since", metavar="TIME", default="", help="Packets from then on; ISO 8601, UTC.")
@click.option("--until", metavar="TIME", default="", help="And only those before.")
@click.option("--api", "apis", metavar="NAME", multiple=True, help="Of these APIs only.")
@click.option("--show-secrets", is_flag=True, help=SHOW_SECRETS)
def command(
    source: Input, tables: tuple[str, ...], output: str, master: str | None, since: str, until: str,
    apis: tuple[str, ...], show_secrets: bool,
) -> None:  # fmt: skip
    """Write tables as Parquet, by date and API, on Spark.

    For more captures than one machine reads in time. The rows are those of export.
    """
    allow_pandas()
    from analysis.spark.session import session
    from dissector.errors import DissectorError

    try:
        bar = str(sys.stderr.isatty()).lower()
        spark = session(master or f"local[{source.jobs}]", {"spark.ui.showConsoleProgress": bar})
    except DissectorError as error:
        raise click.ClickException(str(error)) from error
    from analysis.spark import job, options

    try:
        request = options.request(
            source.captures, tables, ports=source.ports, apis=apis, since=since, until=until,
            keylog=source.keylog, show_secrets=show_secrets, memory=source.memory << 20,
        )  # fmt: skip
        for name, rows, folder in job.run(spark, request, output):
            click.echo(f"{name}: {rows:,} rows in {folder}")
    except DissectorError as error:
        raise click.ClickException(str(error)) from error
    finally:
        spark.stop()

"""``kafka-dissector sniff``: what goes on now."""

from __future__ import annotations

import click


@click.command("sniff")
@click.argument("pipe", metavar="[-]", required=False)
@click.option(
    "-i",
    "--interface",
    "interfaces",
    multiple=True,
    metavar="NAME",
    help="Capture from this interface, or from any; may be repeated.",
)
@click.option(
    "--port",
    "ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    metavar="PORT",
    help="Only what comes from or goes to this port, where a broker listens; may be repeated.",
)
@click.option("--filter", "expression", metavar="EXPRESSION", help="A filter as tcpdump takes it.")
def command(
    pipe: str | None, interfaces: tuple[str, ...], ports: tuple[int, ...], expression: str | None
) -> None:
    """Show exchanges as they happen, then a summary.

    From interfaces, which needs root or CAP_NET_RAW, or from a pipe of tcpdump or dumpcap:
    ssh host tcpdump -U -w - port 9092 | kafka-dissector sniff -
    """
    if bool(pipe) == bool(interfaces):
        raise click.UsageError("capture from an interface (-i NAME), or from a pipe (-)")
    from analysis.live.lines import Lines
    from analysis.live.opening import opened
    from analysis.live.session import Session, ended_by_signals
    from analysis.live.watching import Counted, Notices
    from analysis.summary_view import screen
    from analysis.terminal import write
    from dissector.errors import DissectorError

    try:
        source, capture = opened(pipe, interfaces, ports, expression or "")
        counted = Counted()
        session = Session(source, capture, [counted, Notices(), Lines(lambda rows: rows)])
        with ended_by_signals(session):
            session.run()
    except DissectorError as error:
        raise click.ClickException(str(error)) from error
    name = ", ".join(interfaces) or "standard input"
    click.echo()
    write(screen(counted.summary, name, capture.packets, "kafka-dissector {} CAPTURE".format))

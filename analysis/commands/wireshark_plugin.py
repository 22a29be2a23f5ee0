"""``kafka-dissector wireshark-plugin``: write a dissector for Wireshark."""

from __future__ import annotations

from pathlib import Path

import click

from analysis.commands.common import notify
from analysis.commands.options import named_command, on_overwrite, output_option
from analysis.commands.output import check_file


@named_command("wireshark-plugin")
@output_option(
    "-o", "--output", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    default="kafka.lua", show_default=True, help="Write the plugin to FILE.",
)  # fmt: skip
@on_overwrite
def command(file: Path, overwrite: bool) -> None:
    """Write a Lua plugin with which Wireshark decodes all APIs and versions.

    It works with Wireshark and tshark 4.0 and newer. Copy it to ~/.local/lib/wireshark/plugins, or
    pass it to tshark:

    \b
      tshark -X lua_script:kafka.lua -r kafka.pcap
    """
    check_file(file, overwrite=overwrite)
    import dissector
    from analysis.export.files import output_file
    from analysis.wireshark.plugin import plugin

    with output_file(file, overwrite=overwrite) as sink:
        sink.write(plugin(dissector.__version__).encode())
    notify(f"{file}: {file.stat().st_size / 1e3:.0f} kB")

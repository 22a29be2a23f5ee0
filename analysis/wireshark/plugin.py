"""The plugin as one Lua file.

The parts share local tables, which `modules.lua` declares. They use only functions that Wireshark
has had since 4.0, and only the syntax and libraries that Lua 5.1 to 5.4 have in common.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from analysis.wireshark.definitions import definitions

PARTS: Final = (
    "wire", "fields", "facts", "walker", "layouts", "batches", "conversations", "messages",
    "registration",
)  # fmt: skip
"""Files of the folder `lua`, in order of use."""


def plugin(version: str) -> str:
    """The text of the file. `version`: of this project."""
    head = (
        f"-- Kafka for Wireshark and tshark 4.0 and newer. Written by kafka-dissector {version}\n"
        "-- (kafka-dissector wireshark-plugin) from its definitions of the protocol.\n"
        "-- SPDX-License-Identifier: Apache-2.0\n"
    )
    return "\n".join([head, _part("modules"), definitions(), *map(_part, PARTS)])


def _part(name: str) -> str:
    return (files("analysis.wireshark") / "lua" / f"{name}.lua").read_text(encoding="utf-8")

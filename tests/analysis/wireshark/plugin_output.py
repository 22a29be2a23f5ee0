"""The messages that the Wireshark plugin shows, and the fields that they should have."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from analysis.wireshark.definitions import field_prefix
from dissector.protocol import registry
from dissector.protocol.explain import Explained, Explanation
from dissector.protocol.notation import FieldLine
from dissector.redaction import REDACTED
from dissector.secrets import hidden
from tests.captures.recorded import CAPTURES

KEYS = CAPTURES / "kafka-4-tls.keys.log"
HEADER = ("is_request", "api_key", "api_version", "correlation_id", "client_id")
LINKS = ("response_to", "response_in", "latency")
Leaf = tuple[str, str]
"""Name of a field without the prefix kafkad, and its value as tshark writes it."""


@dataclass
class Shown:
    """A message as tshark shows it."""

    packet: int
    ports: tuple[int, int]
    header: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    fields: list[Leaf] = field(default_factory=list)
    batches: list[dict[str, str]] = field(default_factory=list)
    beside: list[Leaf] = field(default_factory=list)
    """Fields of all APIs, and the names of expert infos."""


def tshark(script: Path, capture: Path, *options: str) -> str:
    command = ["tshark", "-n", "-X", f"lua_script:{script}", "-r", str(capture)]
    command += ["-o", f"tls.keylog_file:{KEYS}", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert "Lua" not in run.stderr
    assert "_ws.lua.error" not in run.stdout
    assert "Internal error" not in run.stdout
    return run.stdout


def pdml(script: Path, capture: Path, *options: str) -> str:
    return tshark(script, capture, "-Y", "kafkad", "-T", "pdml", "-J", "frame tcp kafkad", *options)


def shown(text: str) -> list[Shown]:
    """The messages in tshark's output."""
    messages = []
    for packet in ET.fromstring(text):
        number, ports = 0, (0, 0)
        for proto in packet:
            values = {each.get("name"): each.get("show") for each in proto}
            if proto.get("name") == "frame":
                number = int(values["frame.number"] or 0)
            elif proto.get("name") == "tcp":
                ports = int(values["tcp.srcport"] or 0), int(values["tcp.dstport"] or 0)
            elif proto.get("name") == "kafkad":
                message = Shown(number, ports)
                collect(proto, message)
                messages.append(message)
    return messages


def collect(element: ET.Element, message: Shown) -> None:
    for each in element:
        name = (each.get("name") or "").removeprefix("kafkad.")
        value = each.get("show") or ""
        if name.startswith("_ws."):
            message.beside += [(child.get("name") or "", "") for child in each]
            continue
        if name == "batch":
            message.batches.append(
                {(child.get("name") or "").rpartition(".")[2]: child.get("show") or ""
                 for child in each}
            )  # fmt: skip
            continue
        if name in HEADER:
            message.header[name] = value
        elif name in LINKS:
            message.links[name] = value
        elif "." in name or name in ("null", "tagged_fields", "unknown_tag"):
            message.fields.append((name, value))
        else:
            message.beside.append((name, value))
        collect(each, message)


@cache
def names_of(api_key: int) -> dict[tuple[str, str], str]:
    """The last part of a field's name, by name and type on the page."""
    names: dict[tuple[str, str], str] = {}

    def walk(lines: tuple[FieldLine, ...]) -> Iterator[tuple[str, str]]:
        for line in lines:
            yield line.name, line.type
            yield from walk(line.lines)

    for section in registry.page(api_key).sections:
        for name, type in walk(section.lines):
            is_taken = any(name == each and type != kind for each, kind in names)
            names.setdefault((name, type), f"{name}_{type}" if is_taken else name)
    return names


def expected(api_key: int, explanation: Explanation) -> list[Leaf]:
    """The fields of a message as the plugin shows them."""
    leaves = []
    secret = hidden(explanation.events)
    for event in explanation.events:
        if event.path.startswith("header.") and event.value is not None and event.type != "tags":
            continue
        if event.type == "tags" and not event.value:
            continue
        value = REDACTED if event.path in secret else text_of(event)
        if value == REDACTED and event.type == "records" and "secret" not in event.roles:
            value = ""  # of bytes; their text has the mark
        leaves.append((name_of(event, api_key), value))
    return leaves


def name_of(event: Explained, api_key: int) -> str:
    name = event.path.rpartition(".")[2].partition("[")[0]
    prefix = field_prefix(registry.apis()[api_key])
    if event.type == "tags":
        return "tagged_fields"
    if event.name.startswith("tag "):
        return "unknown_tag"
    if event.value is None:
        return "null"
    if event.type.startswith("["):
        return f"{prefix}.{name}.count"
    type = "struct" if event.type == "{}" else event.type
    return f"{prefix}.{names_of(api_key)[name, type]}"


def text_of(event: Explained) -> str:
    if event.value is None:
        return event.path.rpartition(".")[2].partition("[")[0]
    if event.type == "{}":
        return ""
    if isinstance(event.value, bytes):
        return event.value.hex(":")
    if isinstance(event.value, float):
        return format(event.value, ".15g")
    return str(int(event.value)) if isinstance(event.value, bool) else str(event.value)

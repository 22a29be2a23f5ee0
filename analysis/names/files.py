"""Files with names of addresses, for `--names` and `zones --zones`.

    lines       address or network, then names, as in /etc/hosts: ``10.0.0.9 kafka-1 kafka-1.local``
    CSV         address or network, name; a header with ``name`` and ``address`` may precede
    JSON        an object from addresses to names, or a list of objects with ``address``, ``name``
    Kubernetes  what ``kubectl get pods,services,nodes -o json`` prints

A pod in the network of its host has the address of the node, so it gives no name. If the objects of
Kubernetes are from several namespaces, names are ``namespace/name``.
"""

from __future__ import annotations

import csv
import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from analysis.names.addresses import Network
from dissector.errors import DissectorError

ADDRESS_COLUMNS: Final = ("address", "ip", "network", "cidr")
"""Names of the column, or key, of addresses; the last of these may contain networks."""
_FORMATS: Final = "ADDRESS NAME lines, CSV, JSON, or the JSON of kubectl get pods"


def read_names(path: Path) -> list[tuple[Network, str]]:
    """Networks with their names. A network may have several names.

    Raises DissectorError if the file is not in one of the formats, OSError if it cannot be read.
    """
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DissectorError(f"{path} is not text; use {_FORMATS}") from error
    if text.lstrip()[:1] in ("{", "["):
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:  # values may be nested too deeply
            raise DissectorError(f"{path} is not valid JSON: {error}") from error
        pairs = list(_of_json(content, path))
    else:
        pairs = list(_of_lines(text.splitlines(), path))
    if not pairs:
        raise DissectorError(f"{path} contains no names of addresses; use {_FORMATS}")
    return pairs


def _of_lines(lines: Iterable[str], path: Path) -> Iterator[tuple[Network, str]]:
    at, named = 0, 1
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        content = line.partition("#")[0].strip()
        if not content:
            continue
        if "," not in content:
            address, *names = content.split()
        else:
            cells = [cell.strip() for cell in next(csv.reader([content], skipinitialspace=True))]
            lower = [cell.lower() for cell in cells]
            headings = [name for name in ADDRESS_COLUMNS if name in lower]
            if headings and "name" in lower:
                at, named = lower.index(headings[0]), lower.index("name")
                continue
            address = cells[at] if at < len(cells) else ""
            names = cells[named : named + 1]
        if not any(names):
            raise DissectorError(f"{where}: {line.strip()!r} has no name; use {_FORMATS}")
        named_network = network(address, where)
        yield from ((named_network, name) for name in names)


def _of_json(content: Any, path: Path) -> Iterator[tuple[Network, str]]:
    if isinstance(content, dict) and "kind" in content and "apiVersion" in content:
        yield from _of_kubernetes(content.get("items", [content]), path)
    elif isinstance(content, dict):
        for address, names in content.items():
            for name in names if isinstance(names, list) else [names]:
                yield network(address, str(path)), _text(name, path)
    else:
        for row in content:
            keys = [key for key in ADDRESS_COLUMNS if isinstance(row, dict) and key in row]
            if not keys or "name" not in row:
                raise DissectorError(f"{path}: {row!r} is not an object with address and name")
            yield network(row[keys[0]], str(path)), _text(row["name"], path)


def _of_kubernetes(items: Iterable[Mapping[str, Any]], path: Path) -> Iterator[tuple[Network, str]]:
    """The addresses of pods, services and nodes."""
    objects = [(item, item.get("metadata", {})) for item in items if item.get("kind")]
    namespaces = {meta["namespace"] for _, meta in objects if "namespace" in meta}
    for item, meta in objects:
        space = meta.get("namespace")
        name = f"{space}/{meta['name']}" if space and len(namespaces) > 1 else meta["name"]
        for address in dict.fromkeys(_addresses(item)):
            yield network(address, f"{path}, {item['kind']} {name}"), name


def _addresses(item: Mapping[str, Any]) -> Iterator[str]:
    spec, status = item.get("spec", {}), item.get("status", {})
    if item["kind"] == "Pod" and not spec.get("hostNetwork"):
        yield from filter(None, [status.get("podIP")])
        yield from (each["ip"] for each in status.get("podIPs", ()))
    elif item["kind"] == "Node":
        kinds = ("InternalIP", "ExternalIP")
        yield from (e["address"] for e in status.get("addresses", ()) if e["type"] in kinds)
    elif item["kind"] == "Service":
        named = [spec.get("clusterIP"), *spec.get("clusterIPs", ()), *spec.get("externalIPs", ())]
        yield from (address for address in named if address not in (None, "", "None"))
        ingress = status.get("loadBalancer", {}).get("ingress") or ()
        yield from (each["ip"] for each in ingress if "ip" in each)


def network(address: object, where: str) -> Network:
    """A network. Raises DissectorError, which names `where` the text stands."""
    try:
        # An address within a network stands for the network: 10.0.0.7/8.
        return ipaddress.ip_network(str(address), strict=False)
    except ValueError:
        raise DissectorError(
            f"{where}: {address!r} is neither an address nor a network such as 10.0.0.0/8"
        ) from None


def _text(name: object, path: Path) -> str:
    if not isinstance(name, str):
        raise DissectorError(f"{path}: {name!r} is not a name")
    return name

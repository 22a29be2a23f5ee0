"""Names of networks, from a file with a line for each: an address or network, and a name.

They are separated by spaces or a comma: ``10.1.0.0/16 zone-a``. ``#`` begins a comment. An address
has the name of the smallest network around it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path

from dissector.errors import DissectorError


def read_networks(path: Path) -> dict[str, str]:
    """The name of each network. Raises DissectorError if the file cannot be read."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except OSError as error:
        raise DissectorError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DissectorError(f"{path} is not text, but needs lines such as {_EXAMPLE}") from error
    networks = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        if len(words) != 2 or not _is_network(words[0]):
            raise DissectorError(
                f"{path}, line {number}: {line.strip()!r} is not a network and a name, such as "
                f"{_EXAMPLE}"
            )
        networks[words[0]] = words[1]
    return networks


def named_addresses(addresses: Iterable[str], networks: Mapping[str, str]) -> dict[str, str]:
    """The names of those addresses that are in a network."""
    parsed = [(ipaddress.ip_network(text, strict=False), name) for text, name in networks.items()]
    parsed.sort(key=lambda network: network[0].prefixlen, reverse=True)
    names = {}
    for text in filter(_is_network, addresses):
        address = ipaddress.ip_address(text)
        names[text] = next((name for network, name in parsed if address in network), "")
    return {text: name for text, name in names.items() if name}


_EXAMPLE = "10.1.0.0/16 zone-a"


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True

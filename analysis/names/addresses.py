"""Names of addresses: of clients and hosts, and the ids of brokers.

Names come from a file (`analysis.names.files`), from name resolution blocks of pcapng, and, for
brokers, from the table `brokers`. An address has the names of the smallest network around it.

Tables and exports contain addresses only: rows depend on the capture alone, and an address is a key
for joins. Names are added where text for people is made (`shown`, `in_text`), and filters accept
them (`all_names`).
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

COLUMNS: Final = frozenset({"client", "client_ip", "broker", "broker_ip"})
"""Columns of tables and answers whose texts are addresses."""
BROKER_COLUMNS: Final = frozenset({"broker", "broker_ip"})
"""Those with addresses of brokers."""

_ADDRESS_IN_TEXT: Final = re.compile(
    r"(?<![\w.:-])\[?[\dA-Fa-f]*[.:][\dA-Fa-f.:]*[\dA-Fa-f]\]?(:\d+)?(?![\w-])"
)
"""Candidates for addresses, perhaps with a port; `Names.shown` ignores other texts."""


class Names:
    """Names of networks, and the ids and hosts of brokers. It grows."""

    def __init__(self, names: Iterable[tuple[Network, str]] = ()) -> None:
        """`names`: a network may have several; the first one is shown."""
        self._networks: defaultdict[Network, dict[str, None]] = defaultdict(dict)
        self._brokers: dict[tuple[int, str, int], None] = {}
        self._located: dict[tuple[str, int | None], dict[tuple[str, int], None]] = {}
        """Host and id of brokers, by address and port. Brokers may share an address by mistake."""
        self._hosts: set[str] = set()
        """Addresses with a name of their own."""
        self._looked_up: dict[str, tuple[str, ...]] = {}
        """Names of the addresses that were looked up."""
        for network, name in names:
            self._networks[network][name] = None
        self._locate_brokers()

    def __bool__(self) -> bool:
        return bool(self._networks or self._brokers)

    def learn_hosts(self, names: Iterable[tuple[str, str]]) -> None:
        """Add names of addresses, after those that are known."""
        for address, name in names:
            self._networks[ipaddress.ip_network(address)][name] = None
        self._looked_up.clear()
        self._locate_brokers()

    def learn_brokers(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add the id, host and port that brokers advertise, as in the table `brokers`."""
        columns = (rows[name].to_pylist() for name in ("broker_id", "host", "port"))
        self._brokers |= dict.fromkeys(zip(*columns, strict=True))
        self._locate_brokers()

    def shown(self, endpoint: str) -> str:
        """An address, or an address with a port, for people: ``kafka-1 (10.0.0.9:9092, id 1)``.

        Without a name, the endpoint remains first: ``10.0.0.9:9092 (id 1)``.
        """
        address, port = _divided(endpoint)
        words = [*self._of(address)[:1], endpoint, *self._ids(address, port)]
        return f"{words[0]} ({', '.join(words[1:])})" if words[1:] else endpoint

    def name(self, address: str) -> str | None:
        """The first name of an address; None without one, and for other texts."""
        return next(iter(self._of(address)), None)

    def brief(self, endpoint: str) -> str:
        """As `shown`, for narrow columns: a name of its own stands for the address.

        ``kafka-1:9092 (id 1)``. With the name of a network, the address stays: others have it, too.
        """
        address, port = _divided(endpoint)
        if address not in self._hosts:
            return self.shown(endpoint)
        name = self._of(address)[0]
        ids = ", ".join(self._ids(address, port))
        head = f"{name}:{port}" if port else name
        return f"{head} ({ids})" if ids else head

    def in_text(self, text: str) -> str:
        """The text with every address as in `shown`."""
        return _ADDRESS_IN_TEXT.sub(lambda match: self.shown(match[0]), text) if self else text

    def all_names(self, endpoint: str) -> list[str]:
        """All names by which filters find an endpoint; for a broker also its host and id."""
        address, port = _divided(endpoint)
        brokers = self._located.get((address, port), {})
        hosts, ids = (host for host, _ in brokers), (str(id) for _, id in brokers)
        return [*dict.fromkeys([*self._of(address), *hosts, *ids])]

    def _ids(self, address: str, port: int | None) -> list[str]:
        """The ids of the brokers at an address, as ``id 1``."""
        ids = {id for _, id in self._located.get((address, port), {})}
        return [f"id {id}" for id in sorted(ids)]

    def _of(self, address: str) -> tuple[str, ...]:
        """The names of an address, or nothing for other texts."""
        if address not in self._looked_up:
            parsed = _parsed(address)
            around = [network for network in self._networks if parsed and parsed in network]
            smallest = max(around, key=lambda network: network.prefixlen, default=None)
            self._looked_up[address] = tuple(self._networks[smallest]) if smallest else ()
        return self._looked_up[address]

    def _locate_brokers(self) -> None:
        """Find the address of each broker: its host, or all addresses that have this name."""
        hosts: defaultdict[str, set[str]] = defaultdict(set)
        for network, names in self._networks.items():
            if network.num_addresses == 1:
                self._hosts.add(str(network.network_address))
                for name in names:
                    hosts[name.lower()].add(str(network.network_address))
        self._located = {}
        for id, host, port in self._brokers:
            parsed = _parsed(host.strip("[]"))
            for address in [str(parsed)] if parsed else hosts[host.lower().rstrip(".")]:
                self._located.setdefault((address, port), {})[host, id] = None


def endpoint(ip: str, port: int) -> str:
    """Address and port as one text, as `analysis.sql.expressions.endpoint`; IPv6 in brackets."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def broker_endpoints(rows: pa.RecordBatch | pa.Table) -> pa.Array:
    """The `endpoint` of the broker of each row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ip, port = rows["broker_ip"], rows["broker_port"].cast(pa.string())
    bracketed = pc.binary_join_element_wise("[", ip, "]", "")
    host = pc.if_else(pc.match_substring(ip, ":"), bracketed, ip)
    return pc.binary_join_element_wise(host, port, ":")


def _divided(endpoint: str) -> tuple[str, int | None]:
    """Address and port: ``10.0.0.9:9092``, ``[2001:db8::1]:9092``, or an address alone."""
    address, colon, port = endpoint.rpartition(":")
    is_bracketed = address.startswith("[") and address.endswith("]")
    if colon and port.isdecimal() and (is_bracketed or ":" not in address):
        return address.strip("[]"), int(port)
    return endpoint.strip("[]"), None


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None

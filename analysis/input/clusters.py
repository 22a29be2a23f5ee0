"""The clusters of a capture: their brokers, and the warning if there are several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from analysis.display.terminal import first_three
from analysis.names.addresses import endpoint
from dissector.errors import DissectorError
from dissector.tables import TABLES
from dissector.tables.finalizer import NamedBatch

CLUSTERS: Final = "clusters"
_ENDPOINT: Final = ("cluster_id", "broker_ip", "broker_port")
ENDPOINTS: Final = f"select distinct {', '.join(_ENDPOINT)} from {CLUSTERS}"
"""SQL: the rows from which `listed` is made."""


class Endpoints:
    """Takes the rows of `ENDPOINTS` from a stream of rows."""

    def __init__(self) -> None:
        self.table = TABLES[CLUSTERS].schema.empty_table().select(_ENDPOINT)

    def taken(self, rows: Iterable[NamedBatch]) -> Iterator[NamedBatch]:
        """The rows of the other tables."""
        for name, batch in rows:
            if name != CLUSTERS:
                yield name, batch
            elif len(batch):
                both = pa.concat_tables([self.table, pa.table(batch.select(_ENDPOINT))])
                self.table = both.group_by([*_ENDPOINT], use_threads=False).aggregate([])


def listed(endpoints: pa.Table) -> dict[str, list[str]]:
    """The endpoints of brokers by cluster, both in order. `endpoints`: the rows of `ENDPOINTS`."""
    by_cluster: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for cluster, ip, port in zip(*(each.to_pylist() for each in endpoints.columns), strict=True):
        by_cluster[cluster].append((ip, port))
    return {
        cluster: [endpoint(*each) for each in sorted(by_cluster[cluster])]
        for cluster in sorted(by_cluster)
    }


def cluster_of(endpoints: pa.Table, brokers: Iterable[tuple[str, int]]) -> str | None:
    """The only cluster that has all these brokers, if there are several clusters.

    `endpoints`: the rows of `ENDPOINTS`.
    """
    known, chosen = listed(endpoints), {endpoint(*broker) for broker in brokers}
    having = [name for name, each in known.items() if not chosen.isdisjoint(each)]
    is_only = len(having) == 1 < len(known) and chosen.issubset(known[having[0]])
    return having[0] if is_only else None


def warning(endpoints: pa.Table, advice: str, option: str) -> list[str]:
    """Lines that name several clusters, and how to select each; empty for one.

    `endpoints`: the rows of `ENDPOINTS`. `advice`: a sentence before the clusters. `option`: what
    selects a cluster, with ``{}`` for its id.
    """
    clusters = listed(endpoints)
    if len(clusters) < 2:
        return []
    texts = ((option.format(name), first_three(each)) for name, each in clusters.items())
    return [
        f"Warning: this capture has {len(clusters)} clusters. Topics, groups and brokers with the "
        f"same name are mixed. {advice}",
        *(f"  {text}  ({brokers})" for text, brokers in texts),
    ]


def unknown_cluster(name: str, known: Mapping[str, Sequence[str]]) -> DissectorError:
    """The error that a cluster is not in the capture."""
    if not known:
        return DissectorError("--cluster: this capture has no cluster ids; use --broker")
    clusters = ", ".join(f"{each} ({first_three(brokers)})" for each, brokers in known.items())
    return DissectorError(f"--cluster {name}: this capture has the clusters {clusters}")

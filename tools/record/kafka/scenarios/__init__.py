"""The scenarios: a function for each capture, with its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tools.record.kafka import artifacts
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster
from tools.record.kafka.recording import Recording

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Settings of a broker with ACLs, as KRaft stores them."""
SCENARIOS: dict[str, Callable[[], None]] = {}


def scenario(record: Callable[[], None]) -> Callable[[], None]:
    """Make `record` a scenario; kafka_4_java is recorded as kafka-4-java."""
    SCENARIOS[record.__name__.replace("_", "-")] = record
    return record


def each(record: Callable[[str], None], *names: str) -> None:
    """Make `record` a scenario for each name. It is called with the name."""
    SCENARIOS.update({name: partial(record, name) for name in names})


@contextmanager
def recorded(
    name: str, about: str, *topics: str, version: str = KAFKA_4, plugin: str = "",
    prepare: Callable[[Recording], object] = lambda _: None, **options: Any,
) -> Iterator[Cluster]:  # fmt: skip
    """A recording of a cluster that has these topics; `options`: those of `Cluster`.

    The broker, with a class of java/PLUGIN.java, and its clients are downloaded before. `prepare`
    is called before the cluster starts.
    """
    broker = artifacts.broker(version)
    artifacts.client(version)
    if plugin:
        broker = artifacts.plugin(broker, plugin)
    with Recording(name, about) as recording:
        prepare(recording)
        with Cluster(recording, version, broker, **options) as cluster:
            if topics:
                cluster.java("Topics", *topics)
            yield cluster


def tap_clients(recording: Recording) -> None:
    """Capture only the connections of clients with the first broker: see `recorded`."""
    recording.tap(select="tcp port 9092", ports=":9092")

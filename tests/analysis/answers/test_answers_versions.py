"""The versions that Kafka 4.0 removed agree with its brokers and with a generator of clients."""

from __future__ import annotations

from collections import defaultdict

import pytest

import analysis
import dissector
from analysis.answers.versions import removed_apis
from dissector.protocol import registry
from tests.analysis.answering import CAPTURES, capture, made
from tests.analysis.made_rows import exchange
from tests.vectors import vectors

EARLY_ACCESS = {"ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge"}
"""Their versions 0 were a preview in 4.0 itself (KIP-932), and are gone since."""


def oldest(name: str) -> dict[str, int]:
    """The oldest version of each API, as the brokers of a capture answer ApiVersions."""
    return {
        str(registry.api_name(each["api_key"])): each["min_version"]
        for exchange in dissector.open_capture(CAPTURES / f"{name}.pcap.zst").exchanges()
        if exchange.api == "ApiVersions" and exchange.response
        for each in exchange.response.body["api_keys"]
    }


def test_remaining_versions_are_those_that_brokers_of_kafka_4_report() -> None:
    then, now = oldest("kafka-3-zookeeper"), oldest("kafka-4-quorum")
    kept = {api: since for api, since in now.items() if since > then.get(api, 0)}
    expected = {api.name: api.kept_since for api in removed_apis() if api.kept_since is not None}
    assert {api: since for api, since in kept.items() if api not in EARLY_ACCESS} == {
        api: since for api, since in expected.items() if api != "Produce"
    }
    gone = {api.name for api in removed_apis() if api.kept_since is None}
    assert gone == then.keys() - now.keys()


def test_versions_that_are_left_are_those_that_clients_of_kafka_4_have() -> None:
    """Of Produce, too, which brokers list from version 0."""
    versions = defaultdict(set)
    for vector in vectors("kafka_clients"):
        if vector["release"] == "4.4.0":
            versions[registry.api_name(vector["api_key"])].add(vector["version"])
    kept = {api: min(numbers) for api, numbers in versions.items() if api not in EARLY_ACCESS}
    pages = {api.name: api.kept_since for api in registry.all_apis()}
    assert kept == {api: pages[str(api)] for api in kept}


@pytest.mark.parametrize(
    ("name", "apis"),
    [
        ("kafka-3-java-0-9", {("Produce", 1), ("Fetch", 1), ("ListOffsets", 0)}),
        ("kafka-3-java-0-10", {("Produce", 2), ("Fetch", 3)}),
        ("kafka-3-java-0-11", set()),  # speaks Produce 3, Fetch 5, and ListOffsets 2
        ("kafka-3-java-2-4", set()),
        ("kafka-4-java", set()),
    ],
)
def test_old_clients_are_listed(name: str, apis: set[tuple[str, int]]) -> None:
    old = analysis.versions(capture(name))
    assert set(zip(old["api"], old["api_version"], strict=True)) == apis
    assert (old["kept_since"] > old["api_version"]).all()


def test_an_api_that_is_gone_is_gone_in_every_version() -> None:
    rows = [exchange(api="LeaderAndIsr", api_version=7), exchange(api="Metadata", api_version=0)]
    removed = analysis.versions(made(exchanges=rows))
    assert removed["api"].tolist() == ["LeaderAndIsr"]
    assert removed["kept_since"].isna().all()
    assert removed["requests"].tolist() == [1]


@pytest.mark.parametrize("name", ["kafka-0-8", "kafka-0-10", "kafka-2-0"])
def test_old_brokers_need_zookeeper(name: str) -> None:
    """Brokers are clients in these threads; the controller has the id of its broker."""
    old = analysis.versions(capture(name)).dropna(subset=["kept_since"])
    is_broker = old["client_id"].str.contains("fetcher", case=False)
    is_broker |= old["client_id"].str.contains("txn-marker")
    assert is_broker.any()
    assert set(old[is_broker]["breaks"]) == {"brokers with ZooKeeper no longer exist"}
    assert not set(old[~is_broker]["breaks"]) & set(old[is_broker]["breaks"])

"""Client ids of brokers, which are clients of other brokers."""

from __future__ import annotations

import re
from typing import Final

BROKER_CLIENT_IDS: Final = (
    r"broker-\d+-fetcher-\d+|ReplicaFetcherThread-\d+-\d+|broker-\d+-txn-marker-sender"
    r"|raft-client-\d+"
)
"""As a regular expression: followers (Kafka's class BrokerBlockingSender; until 0.10 the name of a
ReplicaFetcherThread), transaction coordinators (TransactionMarkerChannelManager) and members of a
quorum (KafkaRaftManager)."""


def is_broker(client_id: str | None) -> bool:
    """Whether a client id is that of a broker."""
    return re.fullmatch(BROKER_CLIENT_IDS, client_id or "") is not None

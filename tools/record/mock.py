"""librdkafka's mock cluster: brokers inside this process that speak Kafka over loopback TCP.

The cluster is created with the library's C functions (rdkafka_mock.h), which confluent-kafka
contains but does not wrap. Only they inject errors, move leaders, delay responses, and lower the
API versions of brokers.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Self

import confluent_kafka

PRODUCER = 0
TRANSPORT = -195
"""RD_KAFKA_RESP_ERR__TRANSPORT: as an injected error, it closes the connection unanswered."""


def _library() -> ctypes.CDLL:
    """The librdkafka that confluent-kafka uses, loaded once for both."""
    package = Path(confluent_kafka.__file__).parent
    (path,) = (package.parent / "confluent_kafka.libs").glob("librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    pointer, text, short = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int16
    number, size = ctypes.c_int, ctypes.c_size_t
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (number, [pointer, text, text, pointer, size]),
        "rd_kafka_new": (pointer, [number, pointer, pointer, size]),
        "rd_kafka_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_new": (pointer, [pointer, number]),
        "rd_kafka_mock_cluster_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
        "rd_kafka_mock_topic_create": (number, [pointer, text, number, number]),
        "rd_kafka_mock_topic_set_error": (None, [pointer, text, number]),
        "rd_kafka_mock_set_apiversion": (number, [pointer, short, short, short]),
        "rd_kafka_mock_broker_set_rtt": (number, [pointer, ctypes.c_int32, number]),
        "rd_kafka_mock_broker_set_down": (number, [pointer, ctypes.c_int32]),
        "rd_kafka_mock_broker_set_up": (number, [pointer, ctypes.c_int32]),
        "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [pointer, ctypes.c_int32]),
        "rd_kafka_mock_coordinator_set": (number, [pointer, text, text, ctypes.c_int32]),
        "rd_kafka_mock_telemetry_set_push_interval": (number, [pointer, ctypes.c_int64]),
        "rd_kafka_mock_telemetry_set_requested_metrics": (number, [pointer, pointer, size]),
        "rd_kafka_mock_partition_set_leader": (
            number,
            [pointer, text, ctypes.c_int32, ctypes.c_int32],
        ),
        "rd_kafka_mock_push_request_errors_array": (None, [pointer, short, size, pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class MockCluster:
    """Brokers 1 to n on 127.0.0.1, on ports that the system chooses."""

    def __init__(self, brokers: int) -> None:
        self._library = _library()
        reason = ctypes.create_string_buffer(512)
        configuration = self._library.rd_kafka_conf_new()
        # The instance that owns the cluster connects nowhere, and would warn of that.
        self._library.rd_kafka_conf_set(configuration, b"log_level", b"3", reason, len(reason))
        self._owner = self._library.rd_kafka_new(PRODUCER, configuration, reason, len(reason))
        if not self._owner:
            raise RuntimeError(reason.value.decode())
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._owner, brokers)
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self.software = f"librdkafka {confluent_kafka.libversion()[0]} mock cluster of {brokers}"

    def _call(self, name: str, *arguments: object) -> None:
        """Call a C function of the cluster. Raises RuntimeError if it returns an error code."""
        if code := getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *arguments):
            raise RuntimeError(f"{name}{arguments}: error {code}")

    def create_topic(self, topic: str, partitions: int, replicas: int = 3) -> None:
        """A topic whose leaders are spread over the brokers."""
        self._call("topic_create", topic.encode(), partitions, replicas)

    def refuse_topic(self, topic: str, error: int) -> None:
        """Respond with `error` for this topic in Metadata."""
        self._call("topic_set_error", topic.encode(), error)

    def offer(self, api_key: int, lowest: int, highest: int) -> None:
        """Set the versions of an API in the response of ApiVersions; -1 and -1 for none."""
        self._call("set_apiversion", api_key, lowest, highest)

    def fail(self, api_key: int, *errors: int) -> None:
        """Return these errors for the next requests of an API; 0 is no error."""
        codes = (ctypes.c_int * len(errors))(*errors)
        self._call("push_request_errors_array", api_key, len(errors), codes)

    def delay(self, broker: int, milliseconds: int) -> None:
        """Delay all responses of a broker by this time; -1 for all brokers."""
        self._call("broker_set_rtt", broker, milliseconds)

    def stop(self, broker: int) -> None:
        """Close a broker's connections, and accept no new ones."""
        self._call("broker_set_down", broker)

    def start(self, broker: int) -> None:
        """Let a stopped broker accept connections again."""
        self._call("broker_set_up", broker)

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition."""
        self._call("partition_set_leader", topic.encode(), partition, broker)

    def coordinate(self, kind: str, key: str, broker: int) -> None:
        """Make a broker the coordinator; kind is ``group`` or ``transaction``."""
        self._call("coordinator_set", kind.encode(), key.encode(), broker)

    def rebalance_after(self, milliseconds: int) -> None:
        """Set the time that a classic group waits for its first members."""
        self._call("group_initial_rebalance_delay_ms", milliseconds)

    def ask_for_telemetry(self, interval_ms: int) -> None:
        """Ask clients for all their metrics, every `interval_ms` milliseconds (KIP-714)."""
        names = (ctypes.c_char_p * 1)(b"*")
        self._call("telemetry_set_requested_metrics", names, len(names))
        self._call("telemetry_set_push_interval", interval_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._owner)

"""The roles of fields that tables need."""

from __future__ import annotations

from collections.abc import Collection

REQUEST_ROLES = frozenset(
    {"acks", "max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "client_rack", "group_id",
     "member_id", "transactional_id", "coordinator_key", "topic", "topic_id", "partition",
     "records", "software_name", "software_version", "sasl_mechanism"}
)  # fmt: skip
RESPONSE_ROLES = frozenset(
    {"throttle_time_ms", "error_code", "member_id", "topic", "topic_id", "partition", "records",
     "host", "port"}
)  # fmt: skip
"""Roles of fields that exchanges and connections need, and the correlator itself."""

TABLE_ROLES = {
    **dict.fromkeys(("batches", "decompressed_batches", "records"), frozenset({"offset"})),
    "errors": frozenset({"error_message", "group_id", "transactional_id", "coordinator_key"}),
    "brokers": frozenset({"broker_id", "broker_rack"}),
    "clusters": frozenset({"cluster_id"}),
    "topics": frozenset({"leader", "leader_epoch", "replicas", "isr"}),
    "partitions": frozenset(
        {"offsets_of", "offset", "offsets", "offset_epoch", "offset_timestamp", "replica_id",
         "group_id", "high_watermark", "last_stable_offset", "log_start_offset", "told_leader",
         "told_leader_epoch", "done_count", "told_lag", "partition_max_bytes", "preferred_replica"}
    ),
    "memberships": frozenset(
        {"generation", "group_instance_id", "group_protocol", "group_leader", "group_member",
         "group_reason", "session_timeout_ms", "rebalance_timeout_ms"}
    ),
    "transactions": frozenset(
        {"producer_id", "producer_epoch", "given_producer_id", "given_producer_epoch", "committed",
         "transaction_timeout_ms", "verify_only", "transactional_id"}
    ),
}  # fmt: skip
"""Roles of fields that only one table needs."""


def wanted_roles(tables: Collection[str] | None) -> tuple[frozenset[str], frozenset[str]]:
    """Roles in requests, and in responses, for these tables; None: for all."""
    extra = (roles for table, roles in TABLE_ROLES.items() if tables is None or table in tables)
    wanted = frozenset[str]().union(*extra)
    return REQUEST_ROLES | wanted, RESPONSE_ROLES | wanted

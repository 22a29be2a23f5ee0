"""Roles: the meaning of a field for the tables, independent of its name in an API.

The same fact has many names in the protocol: a topic is `topic`, `name`, `topic_name`, or one of
`topic_names`. A page gives the field a role, and the tables select fields by role. A field may have
several roles. The parser rejects a role that is not in `ROLES`, so that a typing error on a page is
an error instead of an empty column.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

ROLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        # of a message
        "throttle_time_ms": "time that the client has to wait because of a quota",
        "acks": "replicas that must have the records before the response; 0: no response",
        "max_wait_ms": "longest time that the broker may hold back a fetch",
        "min_bytes": "number of bytes that a fetch waits for",
        "max_bytes": "largest number of bytes that a fetch may return",
        "isolation_level": "0 read_uncommitted, 1 read_committed",
        "client_rack": "rack of the consumer (KIP-392)",
        "group_id": "name of a group; a message may name several",
        "member_id": "member of a group: the sender, or a member that the message names",
        "generation": "generation of a classic group, or epoch of a member (KIP-848)",
        "transactional_id": "name of a transactional producer",
        "replica_id": "broker that fetches as a follower; negative: a client",
        "software_name": "name of the client library (KIP-511)",
        "software_version": "version of the client library (KIP-511)",
        "sasl_mechanism": "SASL mechanism that the client requests",
        "coordinator_key": "group, transactional id or share partition, to find its coordinator",
        "coordinator_type": "kind of the coordinator key: 0 group, 1 transaction, 2 share",
        # of topics and partitions
        "topic": "name of a topic",
        "topic_id": "id of a topic (KIP-516)",
        "partition": "index of a partition",
        "records": "record batches or message sets",
        "partition_max_bytes": "largest number of bytes that a fetch may return of a partition",
        "preferred_replica": "broker that the consumer should fetch from (KIP-392)",
        "leader": "broker id of a partition's leader",
        "leader_epoch": "epoch of a partition's leader",
        "replicas": "broker ids of a partition's replicas",
        "isr": "broker ids of the in-sync replicas",
        # of offsets
        "offsets_of": "index of a partition whose offsets the message contains",
        "offset": "offset to read from, written at, committed, or returned for a timestamp",
        "offsets": "offsets returned for a timestamp, the latest first",
        "offset_epoch": "leader epoch of the offset, or the current one known to the client",
        "offset_timestamp": "timestamp whose offset is requested; -1 latest, -2 earliest",
        "high_watermark": "offset up to which all in-sync replicas have the records",
        "last_stable_offset": "offset up to which all transactions are completed",
        "log_start_offset": "first offset of the log",
        "done_count": "records after the offset that a share group has completed (KIP-1226)",
        "told_lag": "lag of a share group in records, as the broker reports it (KIP-1226)",
        "told_leader": "current leader, reported by a broker that is not the leader (KIP-951)",
        "told_leader_epoch": "its epoch",
        # of groups
        "group_instance_id": "name that a static member keeps (KIP-345)",
        "group_protocol": "assignor or other protocol that a group uses or a member requests",
        "group_leader": "member of a classic group that assigns the partitions",
        "group_member": "member in a list of members",
        "group_reason": "reason why a member joins or leaves (KIP-800)",
        "session_timeout_ms": "longest time between heartbeats of a member",
        "rebalance_timeout_ms": "longest time that a member may take to rejoin",
        # of transactions
        "producer_id": "id of the transaction's producer",
        "producer_epoch": "its epoch",
        "given_producer_id": "new id of the producer",
        "given_producer_epoch": "new epoch of the producer",
        "committed": "whether a transaction commits or aborts",
        "transaction_timeout_ms": "longest duration of a transaction",
        "verify_only": "whether the request only checks that the partitions are in a transaction",
        # of errors
        "error_code": "error code; 0 means no error",
        "error_message": "the broker's message for the error code next to it",
        # of brokers
        "broker_id": "id of the broker whose endpoint is next to it",
        "host": "host of a broker's endpoint",
        "port": "port of a broker's endpoint",
        "cluster_id": "id of the cluster of the broker (KIP-78)",
        "broker_rack": "rack of the broker whose endpoint is next to it (KIP-36)",
        # of configurations
        "config_name": "name of a configuration",
        "config_value": "value of a configuration, which may be secret",
        "is_sensitive": "whether the value next to it is secret",
        # of secret bytes
        "secret": "credential: SASL token, salted password, HMAC",
        # of bytes and strings that contain a structure of Kafka
        "protocol_type": "kind of group of the bytes next to it: consumer, connect",
        "protocol_name": "assignor of the bytes next to it",
        "consumer_subscription": "subscription of a member, usually ConsumerProtocolSubscription",
        "consumer_assignment": "assignment of a member, usually ConsumerProtocolAssignment",
        "subscription_user_data": "data of the assignor: for Streams, SubscriptionInfo",
        "assignment_user_data": "data of the assignor: for Streams, AssignmentInfo",
        "principal": "sender of a forwarded request: DefaultPrincipalData",
        "envelope_request": "forwarded request, with its header (KIP-590)",
        "envelope_response": "response to a forwarded request, with its header (KIP-590)",
        "sasl_token": "token of a SASL mechanism",
        "telemetry": "OTLP metrics (KIP-714)",
        "compression": "codec of the telemetry next to it",
    }
)
"""Meaning of each role."""

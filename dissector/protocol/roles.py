"""Roles: what the tables make of a field, whatever each API happens to call it.

The same fact has many names in the protocol: a topic is `topic`, `name`, `topic_name`, one of
`topic_names`. A page gives the field a role, and whoever fills a table asks for the role. A field
may have several. The parser rejects a role that is not in `ROLES`, so a typing error in a page is
an error and not an empty column.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

ROLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        # of a message
        "throttle_time_ms": "how long the client is to wait, because of a quota",
        "acks": "how many replicas are to have the records before the broker answers; 0: no answer",
        "max_wait_ms": "how long the broker may hold a fetch back",
        "min_bytes": "how many bytes a fetch waits for",
        "group_id": "name of a group; a message may name several",
        "member_id": "member of a group that speaks or is spoken of",
        "generation": "generation of a classic group, or epoch of a member (KIP-848)",
        "transactional_id": "name of a transactional producer",
        "replica_id": "broker that asks as a follower; negative: a client",
        "software_name": "name of the client library (KIP-511)",
        "software_version": "version of the client library (KIP-511)",
        "sasl_mechanism": "SASL mechanism that the client asks for",
        "coordinator_key": "group, transactional id or share partition whose coordinator is sought",
        "coordinator_type": "what the coordinator key is: 0 group, 1 transaction, 2 share",
        # of topics and partitions
        "topic": "name of a topic",
        "topic_id": "id of a topic (KIP-516)",
        "partition": "index of a partition",
        "records": "record batches or message sets",
        "leader": "broker id of a partition's leader",
        "leader_epoch": "epoch of a partition's leader",
        "replicas": "broker ids of a partition's replicas",
        "isr": "broker ids of the replicas that are in sync",
        # of offsets
        "offsets_of": "index of a partition of whose offsets the message speaks",
        "offset": "offset to read from, written at, committed or found",
        "offset_epoch": "leader epoch that goes with the offset, or that the client believes in",
        "offset_timestamp": "timestamp whose offset is sought; -1 latest, -2 earliest",
        "high_watermark": "offset up to which all replicas in sync have the records",
        "last_stable_offset": "offset up to which all transactions are decided",
        "log_start_offset": "first offset of the log",
        "done_count": "records behind the offset that a share group is done with (KIP-1226)",
        "told_lag": "records that a share group is behind, as the broker counts (KIP-1226)",
        "told_leader": "leader that the broker names because it is not the leader (KIP-951)",
        "told_leader_epoch": "its epoch",
        # of groups
        "group_instance_id": "name that a static member keeps (KIP-345)",
        "group_protocol": "assignor or other protocol that a group agrees on, or a member wants",
        "group_leader": "member of a classic group that assigns the partitions",
        "group_member": "one of the members that a message lists",
        "group_reason": "why a member joins or leaves (KIP-800)",
        "session_timeout_ms": "how long a member may be silent",
        "rebalance_timeout_ms": "how long a member may take to join again",
        # of transactions
        "producer_id": "id of the producer whose transaction it is",
        "producer_epoch": "its epoch",
        "given_producer_id": "id that the producer is to have from now on",
        "given_producer_epoch": "epoch that it is to have from now on",
        "committed": "whether a transaction commits or aborts",
        "transaction_timeout_ms": "how long a transaction may take",
        "verify_only": "whether the broker only asks if the partitions are in a transaction",
        # of errors
        "error_code": "error code; 0 is none",
        "error_message": "what the broker says about the error code beside it",
        # of brokers
        "broker_id": "id of the broker whose endpoint stands beside it",
        "host": "host of a broker's endpoint",
        "port": "port of a broker's endpoint",
        # of configurations
        "config_name": "name of a configuration",
        "config_value": "its value, which may be secret",
        "is_sensitive": "whether the broker takes the value beside it for secret",
        # of bytes that are not to be shown
        "secret": "credential: SASL token, salted password, HMAC",
        # of bytes and strings that hold a structure of Kafka's own
        "protocol_type": "what kind of group the bytes beside it belong to: consumer, connect",
        "protocol_name": "assignor that the bytes beside it were made for",
        "consumer_subscription": "what a member asks for: ConsumerProtocolSubscription, mostly",
        "consumer_assignment": "what a member is given: ConsumerProtocolAssignment, mostly",
        "subscription_user_data": "what the assignor adds: of Streams SubscriptionInfo",
        "assignment_user_data": "what the assignor adds: of Streams AssignmentInfo",
        "principal": "who sent a forwarded request; DefaultPrincipalData",
        "envelope_request": "forwarded request, with its header (KIP-590)",
        "envelope_response": "answer to a forwarded request, with its header (KIP-590)",
        "sasl_token": "what a SASL mechanism has one end say to the other",
        "telemetry": "OTLP metrics (KIP-714)",
        "compression": "codec of the telemetry beside it",
    }
)
"""Each role and what it means."""

"""The declaration of all tables: their columns, with types, units and meanings.

Arrow schemas, Spark schemas, documentation and checks follow from `TABLES`. Times are nanoseconds
since 1970, UTC. Packet numbers are 1-based, as in Wireshark. The size of a message includes its
4-byte length. Null means unknown or absent. The meaning of a column states when it is null. A
column that certain APIs fill, as in `filled by` of the documentation, is also null in rows of other
APIs, and if the message with the field is not in the capture.
"""

from __future__ import annotations

from types import MappingProxyType

import pyarrow as pa

from dissector.tables.table import Table, TableColumn

TIME = pa.timestamp("ns", "UTC")
TEXT = pa.string()
TIMES = ("request_time", "time", "first_time", "response_time")
"""The time of a row is the first of these columns that is not null."""

_CONNECTION = TableColumn("connection_id", pa.int64(), "number of the TCP connection, from 0")
_CORRELATION = TableColumn(
    "correlation_id", pa.int32(), "number that identifies a response's request"
)
_API = TableColumn("api", TEXT, "name of the API, as in Kafka's protocol guide")
_TOPIC = TableColumn(
    "topic", TEXT, "name of the topic; its id as text if the capture does not contain its name"
)
_PARTITION = TableColumn("partition", pa.int32(), "index of the partition")
_CLIENT_ID = TableColumn(
    "client_id",
    TEXT,
    "client id; ends with … if the packet was truncated inside it, or if its length is damaged; "
    "null if the request has none or is not in the capture",
)
_API_VERSION = TableColumn("api_version", pa.int16(), "version of the request")
_TIME_OF_RESPONSE = TableColumn("time", TIME, "time of the response's first byte")
_TIME_OF_MESSAGE = TableColumn(
    "time", TIME, "time of the first byte of the message that contains it"
)
_RECORD_COUNT = TableColumn(
    "record_count", pa.int64(), "number of records produced or fetched, from batch headers"
)
_FIRST_ERROR_CODE = TableColumn(
    "error_code", pa.int16(), "first error code other than 0; null without a response"
)
_ERROR = TableColumn("error", TEXT, "name of the error code")
_REQUEST_TIME = TableColumn("time", TIME, "time of the request's first byte")
_NO_REQUEST = "null if the request is not in the capture"
_NO_RESPONSE = "null without a response"
_NO_HEADER = f"{_NO_REQUEST}, and for tokens after SaslHandshake 0"
_CUT_HEADER = "for a batch truncated in its header"
_NO_TIME = f"for magic 0, {_CUT_HEADER}"
_RESPONSE_TIME = TableColumn(
    "response_time", TIME, f"time of the response's first byte; {_NO_RESPONSE}"
)
_ENDPOINTS = (
    TableColumn("client_ip", TEXT, "address of the client"),
    TableColumn("client_port", pa.int32(), "port of the client"),
    TableColumn("broker_ip", TEXT, "address of the broker"),
    TableColumn("broker_port", pa.int32(), "port of the broker"),
)
_EXCHANGE = (_CONNECTION, _CORRELATION, _REQUEST_TIME, _RESPONSE_TIME, _API)

EXCHANGES = Table(
    "exchanges",
    "a request with its response, or a response whose request is not in the capture",
    (
        TableColumn("capture", TEXT, "file with the first byte of the request"),
        _CONNECTION,
        *_ENDPOINTS,
        TableColumn("api_key", pa.int16(), f"number of the API; {_NO_HEADER}"),
        TableColumn(
            "api", TEXT, f"name of the API, as in Kafka's protocol guide; {_NO_REQUEST}, or if the "
            "API is unknown"
        ),
        TableColumn("api_version", pa.int16(), f"version of the request; {_NO_HEADER}"),
        TableColumn(
            "correlation_id", pa.int32(), "number that identifies a response's request; null for "
            "tokens after SaslHandshake 0"
        ),
        _CLIENT_ID,
        TableColumn(
            "status",
            TEXT,
            "answered, no_reply_expected (acks=0, or the last token of GSSAPI), unanswered "
            "(decoded or not), request_missing or undecoded",
        ),
        TableColumn("request_time", TIME, f"time of the request's first byte; {_NO_REQUEST}"),
        TableColumn("request_end_time", TIME, f"time of the request's last byte; {_NO_REQUEST}"),
        TableColumn("response_time", TIME, f"time of the response's first byte; {_NO_RESPONSE}"),
        TableColumn("response_end_time", TIME, f"time of the response's last byte; {_NO_RESPONSE}"),
        TableColumn(
            "latency_ms", pa.float64(),
            "time from the end of the request to the start of the response; may be negative if the "
            "two directions were captured with different clocks; null without a request or "
            "response",
            "ms",
        ),
        TableColumn(
            "request_packet", pa.int64(),
            f"packet number of the request's first byte; {_NO_REQUEST}",
        ),
        TableColumn(
            "response_packet", pa.int64(),
            f"packet number of the response's first byte; {_NO_RESPONSE}",
        ),
        TableColumn("request_bytes", pa.int64(), f"size of the request; {_NO_REQUEST}", "bytes"),
        TableColumn("response_bytes", pa.int64(), f"size of the response; {_NO_RESPONSE}", "bytes"),
        TableColumn(
            "in_flight", pa.int32(),
            "number of unanswered requests of the connection after this one was sent, including "
            f"it; {_NO_REQUEST}",
        ),
        TableColumn("throttle_time_ms", pa.int32(), "throttle time in the response", "ms"),
        TableColumn("error_code", pa.int16(), "first error code other than 0 in the response"),
        TableColumn("error", TEXT, "name of the error code; NONE if the response has no error"),
        TableColumn(
            "error_count", pa.int32(), "number of error codes other than 0 in the response"
        ),
        TableColumn("acks", pa.int16(), "acks of a Produce request"),
        TableColumn("max_wait_ms", pa.int32(), "longest time that a Fetch may wait", "ms"),
        TableColumn("min_bytes", pa.int32(), "size of records for which a Fetch waits", "bytes"),
        TableColumn(
            "max_bytes", pa.int32(), "largest size of records in the response to a Fetch", "bytes"
        ),
        TableColumn("isolation_level", TEXT, "read_uncommitted or read_committed"),
        TableColumn("client_rack", TEXT, "rack of the client; null if it has none (KIP-392)"),
        TableColumn(
            "topics", pa.list_(TEXT),
            "topics in the request; if it has none, those in the response",
        ),
        TableColumn(
            "partition_count", pa.int32(),
            "number of partitions in the request; if it has none, in the response",
        ),
        _RECORD_COUNT,
        TableColumn("record_bytes", pa.int64(), "size of their batches", "bytes"),
        TableColumn("group_id", TEXT, "group in the request; the first if it has several"),
        TableColumn(
            "member_id", TEXT, "id of the group member; from the response if the request has none"
        ),
        TableColumn("transactional_id", TEXT, "transactional id of the request"),
    ),
)  # fmt: skip

ERRORS = Table(
    "errors",
    "an error code other than 0, anywhere in a response",
    (
        _CONNECTION,
        _CORRELATION,
        _TIME_OF_RESPONSE,
        *_ENDPOINTS[:2],
        _CLIENT_ID,
        *_ENDPOINTS[2:],
        _API,
        _API_VERSION,
        TableColumn("path", TEXT, "path of the error code in the response"),
        _TOPIC,
        _PARTITION,
        TableColumn("error_code", pa.int16(), "error code"),
        _ERROR,
        TableColumn("retriable", pa.bool_(), "whether Kafka's clients retry"),
        TableColumn("error_message", TEXT, "error message from the broker"),
        TableColumn(
            "resource", TEXT,
            "group, transactional id or coordinator key to which the error applies, if it is named",
        ),
    ),
)  # fmt: skip

BATCHES = Table(
    "batches",
    "a record batch, or outermost message, that was produced or fetched",
    (
        _CONNECTION,
        _CORRELATION,
        _TIME_OF_MESSAGE,
        _API,
        _CLIENT_ID,
        _TOPIC,
        TableColumn("topic_id", TEXT, "id of the topic; null if the message does not contain it"),
        _PARTITION,
        TableColumn(
            "base_offset", pa.int64(),
            "offset of the first record in the partition; for a Produce, from the response: null "
            "with acks=0, an error, or no response; null for a fetched compressed message of "
            f"magic 0 or 1, and {_CUT_HEADER}",
        ),
        TableColumn(
            "last_offset", pa.int64(),
            "offset of the last record; for a Produce, computed from base_offset and "
            f"record_count, and null without them; null {_CUT_HEADER}",
        ),
        TableColumn(
            "record_count", pa.int32(), "number of records, from the batch header; null for a "
            f"compressed message of magic 0 or 1, and {_CUT_HEADER}"
        ),
        TableColumn("magic", pa.int8(), "version of the format: 0, 1 or 2"),
        TableColumn("codec", TEXT, f"none, gzip, snappy, lz4 or zstd; null {_CUT_HEADER}"),
        TableColumn(
            "timestamp_type", TEXT,
            f"create_time or log_append_time; null for magic 0, and {_CUT_HEADER}",
        ),
        TableColumn(
            "base_timestamp", TIME,
            f"timestamp of the first record; null {_NO_TIME}, for a compressed message of magic 1, "
            "if it is -1, and if a delete horizon replaces it (KIP-534)",
        ),
        TableColumn("max_timestamp", TIME, f"largest timestamp; null {_NO_TIME}, and if it is -1"),
        TableColumn(
            "leader_epoch", pa.int32(),
            "epoch of the leader that wrote the batch; null in a Produce, and before magic 2",
        ),
        TableColumn(
            "producer_id", pa.int64(), "id of an idempotent producer; null without idempotence"
        ),
        TableColumn("producer_epoch", pa.int16(), "epoch of the producer; null without one"),
        TableColumn(
            "base_sequence", pa.int32(), "sequence number of the first record; null without one"
        ),
        TableColumn(
            "is_transactional", pa.bool_(),
            f"whether it is part of a transaction; null {_CUT_HEADER}",
        ),
        TableColumn(
            "is_control", pa.bool_(),
            f"whether it is a control batch, which only brokers write; null {_CUT_HEADER}",
        ),
        TableColumn("bytes", pa.int64(), "size including the header", "bytes"),
        TableColumn(
            "uncompressed_bytes", pa.int64(),
            "size without compression; null for compressed batches, except in decompressed_batches",
            "bytes",
        ),
        TableColumn(
            "crc_ok", pa.bool_(), "whether the checksum is valid; null for truncated batches"
        ),
        TableColumn("truncated", pa.bool_(), "whether the fetch limit truncated the batch"),
        TableColumn(
            "error_code", pa.int16(), f"error code of the partition in the response; {_NO_RESPONSE}"
        ),
        TableColumn(
            "crc", pa.int64(),
            "checksum in the header: equal in all copies of a batch, regardless of the offset; "
            f"null {_CUT_HEADER}",
        ),
    ),
)  # fmt: skip

RECORDS = Table(
    "records",
    "a record",
    (
        _CONNECTION,
        _CORRELATION,
        _TIME_OF_MESSAGE,
        _API,
        _TOPIC,
        _PARTITION,
        TableColumn(
            "offset", pa.int64(),
            "offset in the partition; for a Produce, from the response: null with acks=0, an "
            "error, or no response",
        ),
        TableColumn(
            "timestamp", TIME,
            "timestamp from the producer or the log; null for magic 0, or if it is -1",
        ),
        TableColumn("key", pa.large_binary(), "key; null if the record has none"),
        TableColumn(
            "value", pa.large_binary(),
            "value; [redacted] if it contains a secret; null for a tombstone",
        ),
        TableColumn(
            "headers",
            pa.list_(pa.struct([("key", TEXT), ("value", pa.binary())])),
            "headers, in order",
        ),
        TableColumn(
            "record_kind", TEXT,
            "kind of a control record or a record of an internal topic: commit, abort, "
            "OffsetCommit, TopicRecord; null for others",
        ),
        TableColumn("decoded", TEXT, "content of such a record, as JSON; null for others"),
    ),
    opt_in=True,
)  # fmt: skip


_NO_KAFKA = "null for a connection without Kafka"


def _packets_from(end: str) -> tuple[TableColumn, ...]:
    return (
        TableColumn(f"{end}_packets", pa.int64(), f"number of packets from the {end}"),
        TableColumn(f"{end}_bytes", pa.int64(), f"payload bytes from the {end}", "bytes"),
        TableColumn(
            f"{end}_retransmitted",
            pa.int64(),
            f"number of packets with only retransmitted bytes, without keep-alives; {_NO_KAFKA}",
        ),
        TableColumn(
            f"{end}_out_of_order",
            pa.int64(),
            f"number of packets that arrived after a later one; {_NO_KAFKA}",
        ),
        TableColumn(
            f"{end}_lost_bytes",
            pa.int64(),
            f"bytes that are missing from the capture; {_NO_KAFKA}",
            "bytes",
        ),
    )


def _zero_windows(end: str) -> TableColumn:
    meaning = f"number of packets in which the {end} advertises a window of 0"
    return TableColumn(f"{end}_zero_windows", pa.int64(), meaning)


def _round_trip(end: str) -> TableColumn:
    meaning = f"median round trip between capture point and {end}, from acknowledgements, "
    meaning += "accurate to 1 %; null if none was sent at once"
    return TableColumn(f"{end}_rtt_ms", pa.float64(), meaning, "ms")


CONNECTIONS = Table(
    "connections",
    "a TCP connection",
    (
        _CONNECTION,
        *_ENDPOINTS,
        TableColumn("first_time", TIME, "time of the first packet"),
        TableColumn("last_time", TIME, "time of the last packet"),
        TableColumn("protocol", TEXT, "kafka (also inside TLS), tls (not decrypted) or unknown"),
        TableColumn("opened", pa.bool_(), "whether the capture contains the TCP handshake"),
        TableColumn(
            "closed",
            TEXT,
            "fin, even if a reset follows, or rst; null if the capture does not contain the end",
        ),
        *_packets_from("client"),
        *_packets_from("broker"),
        TableColumn(
            "handshake_rtt_ms", pa.float64(), "round-trip time of the TCP handshake; null if it is "
            "not complete in the capture",
            "ms",
        ),
        TableColumn("requests", pa.int64(), "number of requests"),
        TableColumn("responses", pa.int64(), "number of responses"),
        TableColumn("software_name", TEXT, "client software, from ApiVersions (KIP-511)"),
        TableColumn("software_version", TEXT, "version of the client software"),
        TableColumn("sasl_mechanism", TEXT, "SASL mechanism, from SaslHandshake"),
        TableColumn(
            "tls_version", TEXT, "TLS version, such as 1.3; null without TLS, as all tls columns"
        ),
        TableColumn("tls_cipher", TEXT, "cipher suite chosen by the broker; null if unknown"),
        TableColumn("tls_sni", TEXT, "host name requested by the client; null if it requests none"),
        TableColumn("tls_alpn", TEXT, "negotiated protocol; null without one, and in TLS 1.3"),
        *map(_zero_windows, ("client", "broker")),
        *map(_round_trip, ("client", "broker")),
        TableColumn("tls_subject", TEXT, "subject of the broker's certificate; null in TLS 1.3"),
    ),
)  # fmt: skip

TOPICS = Table(
    "topics",
    "the state of a partition in Metadata responses, and in requests of a controller with "
    "ZooKeeper: the first state, and each change",
    (
        _TOPIC,
        TableColumn("topic_id", TEXT, "id of the topic"),
        _PARTITION,
        TableColumn("leader", pa.int32(), "id of the leader; -1 if there is none"),
        TableColumn("leader_epoch", pa.int32(), "epoch of the leader"),
        TableColumn("replicas", pa.list_(pa.int32()), "ids of the replicas"),
        TableColumn("isr", pa.list_(pa.int32()), "ids of the replicas in sync"),
        _TIME_OF_MESSAGE,
    ),
)

PARTITIONS = Table(
    "partitions",
    "a partition in an exchange with offsets: Produce, Fetch, ShareFetch, ListOffsets, "
    "OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetForLeaderEpoch, and for share groups "
    "DescribeShareGroupOffsets, ReadShareGroupState and its summary, WriteShareGroupState",
    (
        *_EXCHANGE,
        _API_VERSION,
        _CLIENT_ID,
        TableColumn("group_id", TEXT, "group of the offset; a Fetch does not contain it"),
        _TOPIC,
        TableColumn("topic_id", TEXT, "id of the topic, if the messages contain it"),
        _PARTITION,
        TableColumn(
            "offset", pa.int64(),
            "fetch offset, offset of the first produced record, committed offset, offset found by "
            "ListOffsets, or start offset of a share group; null if there is none",
        ),
        TableColumn(
            "high_watermark", pa.int64(),
            "high watermark: end of the records that all in-sync replicas have",
        ),
        TableColumn(
            "last_stable_offset", pa.int64(),
            "last stable offset: start of the oldest open transaction",
        ),
        TableColumn("log_start_offset", pa.int64(), "first offset of the log"),
        TableColumn(
            "leader_epoch", pa.int32(),
            "epoch of a committed offset, or current epoch as known to the client",
        ),
        TableColumn("bytes", pa.int64(), "size of the records produced or fetched", "bytes"),
        TableColumn(
            "error_code", pa.int16(),
            "error code of the partition, or of the whole response; null without a response",
        ),
        _ERROR,
        _RECORD_COUNT,
        TableColumn("last_offset", pa.int64(), "offset of the last record"),
        TableColumn(
            "replica_id", pa.int32(), "id of the broker that fetches as a follower; null for a "
            "client"
        ),
        TableColumn(
            "asked_timestamp", pa.int64(),
            "timestamp in ListOffsets: -1 for the end, -2 for the start, others in ms since 1970",
            "ms",
        ),
        TableColumn(
            "told_leader", pa.int32(), "leader in the response of a broker that is not the leader"
        ),
        TableColumn("told_leader_epoch", pa.int32(), "epoch of told_leader"),
        TableColumn(
            "done_count", pa.int64(),
            "share groups: number of records after the offset with completed delivery (KIP-1226)",
        ),
        TableColumn(
            "told_lag", pa.int64(),
            "share groups: lag computed by the broker (KIP-1226); null elsewhere",
        ),
        TableColumn(
            "max_bytes", pa.int32(), "largest size of records that a Fetch requests from the "
            "partition",
            "bytes",
        ),
        TableColumn(
            "preferred_replica", pa.int32(),
            "broker from which the consumer should fetch; null for this one (KIP-392)",
        ),
    ),
    opt_in=True,
)  # fmt: skip

MEMBERSHIPS = Table(
    "memberships",
    "an exchange between a group member and its coordinator: JoinGroup, SyncGroup, Heartbeat, "
    "LeaveGroup, ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat",
    (
        *_EXCHANGE,
        _CLIENT_ID,
        TableColumn("group_id", TEXT, "id of the group"),
        TableColumn("group_type", TEXT, "classic, consumer (KIP-848), share or streams"),
        TableColumn("member_id", TEXT, "id of the member; from the response if it has one"),
        TableColumn("group_instance_id", TEXT, "instance id of a static member (KIP-345)"),
        TableColumn("generation", pa.int32(), "generation, or member epoch, in the response"),
        TableColumn(
            "request_generation", pa.int32(),
            "generation, or member epoch, in the request; epoch 0 joins, a negative epoch leaves",
        ),
        TableColumn("protocol", TEXT, "assignor chosen by the group, or requested by the member"),
        TableColumn("leader", TEXT, "member that computes the assignment, from JoinGroup"),
        TableColumn(
            "member_count", pa.int32(),
            "number of members in the response to the group leader, or of leaving members",
        ),
        TableColumn("reason", TEXT, "reason for joining or leaving (KIP-800)"),
        TableColumn("rebalance_timeout_ms", pa.int32(), "time that members have to rejoin", "ms"),
        _FIRST_ERROR_CODE,
        _ERROR,
        TableColumn("session_timeout_ms", pa.int32(), "longest time without a heartbeat", "ms"),
    ),
    opt_in=True,
)  # fmt: skip

TRANSACTIONS = Table(
    "transactions",
    "a transaction, or producer, in an exchange with a coordinator: InitProducerId, "
    "AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers",
    (
        *_EXCHANGE,
        _CLIENT_ID,
        TableColumn("transactional_id", TEXT, "transactional id of the producer"),
        TableColumn("producer_id", pa.int64(), "producer id in the request"),
        TableColumn("producer_epoch", pa.int16(), "producer epoch in the request"),
        TableColumn("committed", pa.bool_(), "true: commit, false: abort"),
        TableColumn("transaction_timeout_ms", pa.int32(), "transaction timeout", "ms"),
        TableColumn("group_id", TEXT, "group whose offsets are part of the transaction"),
        TableColumn("partition_count", pa.int32(), "number of partitions in the request"),
        _FIRST_ERROR_CODE,
        _ERROR,
        TableColumn(
            "given_producer_id", pa.int64(), "producer id in the response, for later requests"
        ),
        TableColumn(
            "given_producer_epoch", pa.int16(), "producer epoch in the response, for later requests"
        ),
        TableColumn(
            "verify_only", pa.bool_(), "whether a broker only checks that the partitions were added"
        ),
    ),
    opt_in=True,
)  # fmt: skip

BROKERS = Table(
    "brokers",
    "a broker or controller with its endpoint in a response: Metadata, DescribeCluster, "
    "FindCoordinator, and others that name the current leader (KIP-951)",
    (
        _CONNECTION,
        _CORRELATION,
        _TIME_OF_RESPONSE,
        _API,
        TableColumn("broker_id", pa.int32(), "id of the broker"),
        TableColumn("host", TEXT, "host that the broker advertises: a name or an address"),
        TableColumn("port", pa.int32(), "port that the broker advertises"),
        TableColumn("rack", TEXT, "rack of the broker (KIP-36); null if it is not in the response"),
    ),
    opt_in=True,
)

CLUSTERS = Table(
    "clusters",
    "a message with a cluster id: the response to Metadata or DescribeCluster, or a request "
    "between brokers and controllers",
    (
        _CONNECTION,
        *_ENDPOINTS,
        _CORRELATION,
        TableColumn("time", TIME, "time of the message's first byte"),
        _API,
        TableColumn("cluster_id", TEXT, "id of the cluster of the broker (KIP-78)"),
    ),
    opt_in=True,
)

PROBLEMS = Table(
    "problems",
    "a part of the input that was not read or not decoded",
    (
        TableColumn("time", TIME, "time of the packet"),
        TableColumn("capture", TEXT, "file; null if the problem is not in one packet"),
        TableColumn(
            "packet", pa.int64(), "packet number; null if the problem is not in one packet"
        ),
        _CONNECTION,
        TableColumn(
            "stage",
            TEXT,
            "stage that reports it: packets, streams, tls, frames, exchanges, protocol or records",
        ),
        TableColumn("kind", TEXT, "short fixed name, such as lost_bytes"),
        TableColumn("detail", TEXT, "description in one sentence"),
        TableColumn("offset", pa.int64(), "byte offset in the file, the stream or the message"),
        TableColumn("bytes", pa.int64(), "number of affected bytes; null if not known", "bytes"),
        TableColumn(
            "count", pa.int64(), "number of packets that the row represents; 1 for other problems"
        ),
    ),
)

DECOMPRESSED_BATCHES = Table(
    "decompressed_batches",
    "a row of `batches`, with its decompressed size",
    BATCHES.columns,
    opt_in=True,
)

TABLES = MappingProxyType(
    {
        table.name: table
        for table in (
            EXCHANGES, ERRORS, BATCHES, RECORDS, CONNECTIONS, TOPICS, PROBLEMS, PARTITIONS,
            MEMBERSHIPS, TRANSACTIONS, DECOMPRESSED_BATCHES, BROKERS, CLUSTERS,
        )
    }
)  # fmt: skip
"""Every table by name."""

"""Every table, declared once: its columns, their types, units and meaning.

The Arrow schemas, the Spark schemas, the documentation and the checks all follow from `TABLES`.
Times are nanoseconds since 1970, UTC. Packet numbers are 1-based, as Wireshark shows them. The size
of a message counts its 4-byte length. Null means not known, or not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

TIME = pa.timestamp("ns", "UTC")
TEXT = pa.string()


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a table."""

    name: str
    type: pa.DataType
    meaning: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """One table."""

    name: str
    row: str
    """What a row is."""
    columns: tuple[TableColumn, ...]
    opt_in: bool = False
    """Filled only where it is asked for by name."""

    @property
    def schema(self) -> pa.Schema:
        """As Arrow has it."""
        return pa.schema([(column.name, column.type) for column in self.columns])


_CONNECTION = TableColumn("connection_id", pa.int64(), "number of the TCP connection, from 0")
_CORRELATION = TableColumn("correlation_id", pa.int32(), "what joins a response to its request")
_API = TableColumn("api", TEXT, "name of the API, as in Kafka's protocol guide")
_TOPIC = TableColumn(
    "topic", TEXT, "name of the topic; its id as text where the capture never names it"
)
_PARTITION = TableColumn("partition", pa.int32(), "index of the partition")
_CLIENT_ID = TableColumn(
    "client_id", TEXT, "what the client calls itself; ends with … where the packet was cut within"
)

EXCHANGES = Table(
    "exchanges",
    "a request with its response, or a response whose request is not in the capture",
    (
        TableColumn("capture", TEXT, "file that holds the request's first byte"),
        _CONNECTION,
        TableColumn("client_ip", TEXT, "address of the client"),
        TableColumn("client_port", pa.int32(), "port of the client"),
        TableColumn("broker_ip", TEXT, "address of the broker"),
        TableColumn("broker_port", pa.int32(), "port of the broker"),
        TableColumn("api_key", pa.int16(), "number of the API"),
        _API,
        TableColumn("api_version", pa.int16(), "version of the request"),
        _CORRELATION,
        _CLIENT_ID,
        TableColumn(
            "status",
            TEXT,
            "answered, no_reply_expected (acks=0), unanswered (decoded or not), request_missing or "
            "undecoded",
        ),
        TableColumn("request_time", TIME, "when the request's first byte was seen"),
        TableColumn("request_end_time", TIME, "when its last byte was seen"),
        TableColumn("response_time", TIME, "when the response's first byte was seen"),
        TableColumn("response_end_time", TIME, "when its last byte was seen"),
        TableColumn(
            "latency_ms", pa.float64(),
            "from the end of the request to the start of the response; negative where the two "
            "directions were captured with different clocks",
            "ms",
        ),
        TableColumn("request_packet", pa.int64(), "packet of the request's first byte"),
        TableColumn("response_packet", pa.int64(), "packet of the response's first byte"),
        TableColumn("request_bytes", pa.int64(), "size of the request", "bytes"),
        TableColumn("response_bytes", pa.int64(), "size of the response", "bytes"),
        TableColumn(
            "in_flight", pa.int32(),
            "requests of the connection waiting for a response once this was sent, itself included",
        ),
        TableColumn("throttle_time_ms", pa.int32(), "throttle time that the response tells", "ms"),
        TableColumn("error_code", pa.int16(), "first error code of the response that is not 0"),
        TableColumn("error", TEXT, "its name; NONE where the response has no error"),
        TableColumn("error_count", pa.int32(), "error codes of the response that are not 0"),
        TableColumn("acks", pa.int16(), "acks of a Produce request"),
        TableColumn("max_wait_ms", pa.int32(), "how long a Fetch may wait", "ms"),
        TableColumn(
            "topics", pa.list_(TEXT),
            "topics that the request names; where it names none, those of the response",
        ),
        TableColumn(
            "partition_count", pa.int32(),
            "partitions that the request names; where it names none, those of the response",
        ),
        TableColumn("record_count", pa.int64(), "records produced or fetched, by batch headers"),
        TableColumn("record_bytes", pa.int64(), "bytes of their batches", "bytes"),
        TableColumn("group_id", TEXT, "group of the request; the first where it names several"),
        TableColumn("member_id", TEXT, "group member; from the response where it is given there"),
        TableColumn("transactional_id", TEXT, "transactional id of the request"),
    ),
)  # fmt: skip

ERRORS = Table(
    "errors",
    "an error code that is not 0, anywhere in a response",
    (
        _CONNECTION,
        _CORRELATION,
        TableColumn("time", TIME, "when the response's first byte was seen"),
        TableColumn("client_ip", TEXT, "address of the client"),
        TableColumn("client_port", pa.int32(), "port of the client"),
        _CLIENT_ID,
        TableColumn("broker_ip", TEXT, "address of the broker"),
        TableColumn("broker_port", pa.int32(), "port of the broker"),
        _API,
        TableColumn("api_version", pa.int16(), "version of the request"),
        TableColumn("path", TEXT, "where in the response the code stands"),
        _TOPIC,
        _PARTITION,
        TableColumn("error_code", pa.int16(), "the code"),
        TableColumn("error", TEXT, "its name"),
        TableColumn("retriable", pa.bool_(), "whether Kafka's clients try again"),
        TableColumn("error_message", TEXT, "what the broker says beside it"),
    ),
)

BATCHES = Table(
    "batches",
    "a record batch, or outermost message, that was produced or fetched",
    (
        _CONNECTION,
        _CORRELATION,
        TableColumn("time", TIME, "when the message that carries it began"),
        _API,
        _CLIENT_ID,
        _TOPIC,
        TableColumn("topic_id", TEXT, "id of the topic, where the message names it so"),
        _PARTITION,
        TableColumn(
            "base_offset", pa.int64(),
            "offset of the first record in the partition; of a Produce, as the response gives it",
        ),
        TableColumn("last_offset", pa.int64(), "offset of the last record, known likewise"),
        TableColumn("record_count", pa.int32(), "records, as the header says"),
        TableColumn("magic", pa.int8(), "version of the format: 0, 1 or 2"),
        TableColumn("codec", TEXT, "none, gzip, snappy, lz4 or zstd"),
        TableColumn("timestamp_type", TEXT, "create_time or log_append_time"),
        TableColumn("base_timestamp", TIME, "timestamp of the first record"),
        TableColumn("max_timestamp", TIME, "largest timestamp"),
        TableColumn("leader_epoch", pa.int32(), "epoch of the leader that wrote it"),
        TableColumn("producer_id", pa.int64(), "id of an idempotent producer"),
        TableColumn("producer_epoch", pa.int16(), "its epoch"),
        TableColumn("base_sequence", pa.int32(), "sequence number of the first record"),
        TableColumn("is_transactional", pa.bool_(), "part of a transaction"),
        TableColumn("is_control", pa.bool_(), "written by the broker, not by a client"),
        TableColumn("bytes", pa.int64(), "size, header included", "bytes"),
        TableColumn(
            "uncompressed_bytes", pa.int64(),
            "size were it not compressed; where it is, told in decompressed_batches only", "bytes",
        ),
        TableColumn("crc_ok", pa.bool_(), "whether the checksum holds; null where cut"),
        TableColumn("truncated", pa.bool_(), "cut by the fetch limit"),
        TableColumn("error_code", pa.int16(), "what the broker answered for the partition"),
    ),
)  # fmt: skip

RECORDS = Table(
    "records",
    "a record",
    (
        _CONNECTION,
        _CORRELATION,
        TableColumn("time", TIME, "when the message that carries it began"),
        _API,
        _TOPIC,
        _PARTITION,
        TableColumn(
            "offset", pa.int64(),
            "offset in the partition; of a Produce, as the response gives it: null with acks=0, "
            "an error, or no response",
        ),
        TableColumn("timestamp", TIME, "time that the producer or the log gave it"),
        TableColumn("key", pa.large_binary(), "key"),
        TableColumn("value", pa.large_binary(), "value; [redacted] where it holds a secret"),
        TableColumn(
            "headers",
            pa.list_(pa.struct([("key", TEXT), ("value", pa.binary())])),
            "headers, in order",
        ),
        TableColumn(
            "record_kind", TEXT,
            "what it is, where Kafka wrote it for itself: commit, abort, OffsetCommit, TopicRecord",
        ),
        TableColumn("decoded", TEXT, "what such a record says, as JSON"),
    ),
    opt_in=True,
)  # fmt: skip

CONNECTIONS = Table(
    "connections",
    "a TCP connection; of those that are not Kafka, what is lost or out of place is not known",
    (
        _CONNECTION,
        TableColumn("client_ip", TEXT, "address of the client"),
        TableColumn("client_port", pa.int32(), "port of the client"),
        TableColumn("broker_ip", TEXT, "address of the broker"),
        TableColumn("broker_port", pa.int32(), "port of the broker"),
        TableColumn("first_time", TIME, "first packet"),
        TableColumn("last_time", TIME, "last packet"),
        TableColumn("protocol", TEXT, "kafka, also inside TLS; tls, not decrypted; or unknown"),
        TableColumn("opened", pa.bool_(), "whether its handshake is in the capture"),
        TableColumn("closed", TEXT, "fin or rst; null where its end is not in the capture"),
        TableColumn("client_packets", pa.int64(), "packets from the client"),
        TableColumn("client_bytes", pa.int64(), "payload bytes from the client", "bytes"),
        TableColumn("client_retransmitted", pa.int64(), "packets with nothing new"),
        TableColumn("client_out_of_order", pa.int64(), "packets that came after a later one"),
        TableColumn("client_lost_bytes", pa.int64(), "bytes that the capture misses", "bytes"),
        TableColumn("broker_packets", pa.int64(), "packets from the broker"),
        TableColumn("broker_bytes", pa.int64(), "payload bytes from the broker", "bytes"),
        TableColumn("broker_retransmitted", pa.int64(), "packets with nothing new"),
        TableColumn("broker_out_of_order", pa.int64(), "packets that came after a later one"),
        TableColumn("broker_lost_bytes", pa.int64(), "bytes that the capture misses", "bytes"),
        TableColumn("handshake_rtt_ms", pa.float64(), "round trip of the handshake", "ms"),
        TableColumn("requests", pa.int64(), "requests seen"),
        TableColumn("responses", pa.int64(), "responses seen"),
        TableColumn("software_name", TEXT, "client software, from ApiVersions (KIP-511)"),
        TableColumn("software_version", TEXT, "its version"),
        TableColumn("sasl_mechanism", TEXT, "mechanism of SASL, from SaslHandshake"),
        TableColumn("tls_version", TEXT, "version of TLS: 1.2, 1.3; null for all of these without"),
        TableColumn("tls_cipher", TEXT, "cipher suite that the broker chose"),
        TableColumn("tls_sni", TEXT, "host name that the client asked for"),
        TableColumn("tls_alpn", TEXT, "protocol that was agreed on; encrypted in TLS 1.3"),
        TableColumn(
            "client_zero_windows", pa.int64(), "packets in which the client says that it is full"
        ),
        TableColumn(
            "broker_zero_windows", pa.int64(), "packets in which the broker says that it is full"
        ),
        TableColumn(
            "client_rtt_ms", pa.float64(),
            "median time from the capture to the client and back, by its acknowledgements, to 1 %",
            "ms",
        ),
        TableColumn(
            "broker_rtt_ms", pa.float64(),
            "median time from the capture to the broker and back, by its acknowledgements, to 1 %",
            "ms",
        ),
        TableColumn("tls_subject", TEXT, "whom the broker's certificate names; up to TLS 1.2"),
    ),
)  # fmt: skip

TOPICS = Table(
    "topics",
    "a partition as Metadata told it: when first told, and whenever it was told otherwise",
    (
        _TOPIC,
        TableColumn("topic_id", TEXT, "id of the topic"),
        _PARTITION,
        TableColumn("leader", pa.int32(), "id of the leader; -1 for none"),
        TableColumn("leader_epoch", pa.int32(), "epoch of the leader"),
        TableColumn("replicas", pa.list_(pa.int32()), "ids of the replicas"),
        TableColumn("isr", pa.list_(pa.int32()), "ids of the replicas in sync"),
        TableColumn("time", TIME, "when the response's first byte was seen"),
    ),
)

_REQUEST_TIME = TableColumn("time", TIME, "when the request's first byte was seen")
_RESPONSE_TIME = TableColumn("response_time", TIME, "when the response's first byte was seen")

PARTITIONS = Table(
    "partitions",
    "a partition in an exchange that tells its offsets: Produce, Fetch, ShareFetch, ListOffsets, "
    "OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetForLeaderEpoch, and where a share group is: "
    "DescribeShareGroupOffsets, ReadShareGroupState and its summary, WriteShareGroupState",
    (
        _CONNECTION,
        _CORRELATION,
        _REQUEST_TIME,
        _RESPONSE_TIME,
        _API,
        TableColumn("api_version", pa.int16(), "version of the request"),
        _CLIENT_ID,
        TableColumn("group_id", TEXT, "group whose offset it is; a Fetch does not tell it"),
        _TOPIC,
        TableColumn("topic_id", TEXT, "id of the topic, where the messages name it so"),
        _PARTITION,
        TableColumn(
            "offset", pa.int64(),
            "offset to fetch from, of the first record produced, committed, or found, or where a "
            "share group begins; null: none",
        ),
        TableColumn("high_watermark", pa.int64(), "end of what all replicas in sync have"),
        TableColumn("last_stable_offset", pa.int64(), "end of what transactions leave undecided"),
        TableColumn("log_start_offset", pa.int64(), "first offset of the log"),
        TableColumn(
            "leader_epoch", pa.int32(),
            "epoch that goes with a committed offset, or that the client believes in",
        ),
        TableColumn("bytes", pa.int64(), "size of the records produced or fetched", "bytes"),
        TableColumn(
            "error_code", pa.int16(),
            "what was answered for the partition, or for all of the request; null: no answer",
        ),
        TableColumn("error", TEXT, "its name"),
        TableColumn("record_count", pa.int64(), "records produced or fetched, by batch headers"),
        TableColumn("last_offset", pa.int64(), "offset of the last of them"),
        TableColumn("replica_id", pa.int32(), "broker that asks as a follower; null: a client"),
        TableColumn(
            "asked_timestamp", pa.int64(),
            "ListOffsets: -1 asks for the end, -2 for the start, others in ms since 1970", "ms",
        ),
        TableColumn("told_leader", pa.int32(), "leader that is named by a broker that is not it"),
        TableColumn("told_leader_epoch", pa.int32(), "its epoch"),
        TableColumn(
            "done_count", pa.int64(),
            "share groups: records behind the offset that need no more delivery (KIP-1226)",
        ),
        TableColumn("told_lag", pa.int64(), "share groups: lag as the broker counts it (KIP-1226)"),
    ),
    opt_in=True,
)  # fmt: skip

MEMBERSHIPS = Table(
    "memberships",
    "an exchange between a group's member and its coordinator: JoinGroup, SyncGroup, Heartbeat, "
    "LeaveGroup, ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat",
    (
        _CONNECTION,
        _CORRELATION,
        _REQUEST_TIME,
        _RESPONSE_TIME,
        _API,
        _CLIENT_ID,
        TableColumn("group_id", TEXT, "the group"),
        TableColumn("group_type", TEXT, "classic, consumer (KIP-848), share or streams"),
        TableColumn("member_id", TEXT, "the member; from the response where it is given there"),
        TableColumn("group_instance_id", TEXT, "name that a static member keeps (KIP-345)"),
        TableColumn(
            "generation", pa.int32(), "generation, or epoch of the member, that the response gives"
        ),
        TableColumn(
            "request_generation", pa.int32(),
            "the same of the request; 0 joins, below 0 leaves, where it is an epoch",
        ),
        TableColumn("protocol", TEXT, "assignor that the group agreed on, or the member wants"),
        TableColumn("leader", TEXT, "member that assigns, by JoinGroup"),
        TableColumn(
            "member_count", pa.int32(),
            "members: of the group, as its leader is told; or that leave",
        ),
        TableColumn("reason", TEXT, "why the member joins or leaves (KIP-800)"),
        TableColumn("rebalance_timeout_ms", pa.int32(), "time to join again in", "ms"),
        TableColumn("error_code", pa.int16(), "first error code that is not 0; null: no answer"),
        TableColumn("error", TEXT, "its name"),
        TableColumn("session_timeout_ms", pa.int32(), "how long it may be silent", "ms"),
    ),
    opt_in=True,
)  # fmt: skip

TRANSACTIONS = Table(
    "transactions",
    "a transaction, or producer, in an exchange with a coordinator: InitProducerId, "
    "AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers",
    (
        _CONNECTION,
        _CORRELATION,
        _REQUEST_TIME,
        _RESPONSE_TIME,
        _API,
        _CLIENT_ID,
        TableColumn("transactional_id", TEXT, "name of the producer, if it has transactions"),
        TableColumn("producer_id", pa.int64(), "id that the request tells"),
        TableColumn("producer_epoch", pa.int16(), "epoch that the request tells"),
        TableColumn("committed", pa.bool_(), "whether the transaction is to commit or to abort"),
        TableColumn("transaction_timeout_ms", pa.int32(), "time for a transaction", "ms"),
        TableColumn("group_id", TEXT, "group whose offsets are part of the transaction"),
        TableColumn("partition_count", pa.int32(), "partitions that the request names"),
        TableColumn("error_code", pa.int16(), "first error code that is not 0; null: no answer"),
        TableColumn("error", TEXT, "its name"),
        TableColumn(
            "given_producer_id", pa.int64(), "id that the response gives: to go on with"
        ),
        TableColumn(
            "given_producer_epoch", pa.int16(), "epoch that the response gives: to go on with"
        ),
        TableColumn("verify_only", pa.bool_(), "a broker asks if the partitions were added"),
    ),
    opt_in=True,
)  # fmt: skip

PROBLEMS = Table(
    "problems",
    "whatever could not be read",
    (
        TableColumn("time", TIME, "of the packet"),
        TableColumn("capture", TEXT, "file"),
        TableColumn("packet", pa.int64(), "packet number"),
        _CONNECTION,
        TableColumn("stage", TEXT, "stage that could not: packets, streams, frames, protocol, …"),
        TableColumn("kind", TEXT, "short fixed name"),
        TableColumn("detail", TEXT, "one sentence"),
        TableColumn("offset", pa.int64(), "offset in the file, the stream or the message"),
        TableColumn("bytes", pa.int64(), "bytes that it concerns", "bytes"),
        TableColumn("count", pa.int64(), "packets that the row stands for, 1 for other things"),
    ),
)

DECOMPRESSED_BATCHES = Table(
    "decompressed_batches",
    "a row of `batches`, with the size that it decompresses to",
    BATCHES.columns,
    opt_in=True,
)

TABLES = MappingProxyType(
    {
        table.name: table
        for table in (
            EXCHANGES, ERRORS, BATCHES, RECORDS, CONNECTIONS, TOPICS, PROBLEMS, PARTITIONS,
            MEMBERSHIPS, TRANSACTIONS, DECOMPRESSED_BATCHES,
        )
    }
)  # fmt: skip
"""Every table by name."""

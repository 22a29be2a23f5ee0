"""Requests as brokers and clients logged them: the facts that captures are tested by.

Each line is a JSON object. `source` is its origin:

broker     One line of Kafka's request log: a request that was answered, or, with acks=0, completed.
           time (ns, when the log line was written: the response had been sent), broker and client
           (address:port), api_key, api, version, correlation_id, client_id, software,
           total_ms = queue_ms + local_ms + remote_ms + throttle_ms + response_queue_ms + send_ms,
           throttle_time_ms (in the response), errors (every code that is not 0, in the order of the
           response), record_bytes (of all record sets), and acks, max_wait_ms, min_bytes,
           max_bytes, isolation_level, client_rack, group_id, member_id, transactional_id if the
           request has them. Null, empty or absent values have no key. Until Kafka 0.11, the log
           has no responses: response_is_logged is false. Until 0.10, times are whole ms, and
           until 2.6, the size of fetched records is not logged.
envelope   The same for a request inside an Envelope (KIP-590), which itself is not logged:
           correlation_id and client_id are those of the request inside.
librdkafka One line of its protocol log, request or response: time, client_id, broker (as it names
           it), api, version, correlation_id, request_bytes or response_bytes (with the 4-byte
           length), rtt_ms.
coordinator One line of a broker's log, of its group or transaction coordinator: time, broker (its
           node), message.
client     Events of a client that logs its own work (python/followed.py): time, client_id, event,
           and the fields of the event: produced, received (topic, partition, offset, created),
           assigned, revoked (partitions), committed (group_id, partition, offset), begun,
           committed, aborted, timed out (transactional_id), lag (group_id, topic, partition,
           committed, end), configured (settings) and measured (metrics, see java/Tuned.java).
share-groups One line of output of kafka-share-groups.sh --describe: time (when it was done),
           group_id, topic, partition, start_offset, lag.
isr        One line of a broker's log about a change of in-sync replicas: time, broker, message.
truncation The same about a follower that truncates its log, and the end of the log before.
security   The same about a failed login, a denied request, or a request without a login; the first
           recordings lack the broker.
tool       One line of output of an administration tool (tool-NAME.log): time (when it was done),
           command (NAME), line.
recorder   An event of a node, with its time.

The broker does not log SaslHandshake, SaslAuthenticate and the ApiVersions before them, requests
that it never finished, and requests that it could not parse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import zstandard

from tools.record import truth as clients
from tools.record.kafka import old_request_log
from tools.record.ledger import CAPTURES
from tools.record.truth import LIBRDKAFKA, MESSAGE, RESPONSE_UNCOUNTED

Value = str | int | float | bool
Row = dict[str, Any]

CONNECTION = re.compile(r"(.+:\d+)-(.+:\d+?)(?:-\d+)*")
WHEN = r"(?P<when>[\d-]+[T ]\S+)"
"""Time of a line of a node's log: since Kafka 4 with a T."""
NODE_LINES = {
    "coordinator": re.compile(
        rf"{WHEN} \w+ (?P<message>.*(?:[Gg]roup|transactionalId).*) "
        r"\((?:org\.apache\.kafka|kafka)\.coordinator\.(?:group|transaction)\..*\)"
    ),
    "security": re.compile(
        rf"{WHEN} \w+ (?P<message>.*(?:Failed authentication|Unexpected error from| is Denied ).*) "
        r"\(\S+\)"
    ),
    "isr": re.compile(rf"{WHEN} \w+ (?P<message>.*(?:Shrinking|Expanding) ISR.*) \(\S+\)"),
    "truncation": re.compile(
        rf"{WHEN} \w+ (?:Completed load of Log\(dir=\S+ )?"
        r"(?P<message>topicId=.* logEndOffset=\d+|.*Truncating partition .*(?= \(\S+\)$))"
    ),
}
"""Lines of a node's log, by their source."""
SHARED = re.compile(
    r"(?P<group>\S+) +(?P<topic>\S+) +(?P<partition>\d+) +(?P<start>\d+) +(?P<lag>\d+) *"
)
STEPS = {
    "total_ms": "totalTimeMs",
    "queue_ms": "requestQueueTimeMs",
    "local_ms": "localTimeMs",
    "remote_ms": "remoteTimeMs",
    "throttle_ms": "throttleTimeMs",
    "response_queue_ms": "responseQueueTimeMs",
    "send_ms": "sendTimeMs",
}
REQUEST_FIELDS = {
    "acks": "acks",
    "max_wait_ms": "maxWaitMs",
    "min_bytes": "minBytes",
    "max_bytes": "maxBytes",
    "client_rack": "rackId",
    "group_id": "groupId",
    "member_id": "memberId",
    "transactional_id": "transactionalId",
}
ISOLATION_LEVELS = {0: "read_uncommitted", 1: "read_committed"}
LOGGERS = ("SLF4J: ", "log4j:")
"""Begin lines that the libraries for logs print on their own behalf."""


def of_logs(work: Path) -> list[Row]:
    """All facts of one recording's folder, in order of time."""
    rows = [row for path in work.glob("*/request.log") for row in of_broker(path)]
    for path in work.glob("*.log"):
        rows += [*of_librdkafka(path), *of_client(path)]
    for path in work.glob("node-*.log"):
        rows += of_node(path)
    rows += [row for path in work.glob("tool-*.log") for row in of_tool(path)]
    rows += [row for path in work.glob("share-groups-*.log") for row in of_share_groups(path)]
    return sorted(rows, key=lambda row: row["time"])


def of_broker(path: Path) -> Iterator[Row]:
    """The facts of one node's request log."""
    properties = path.with_name("properties").read_text()
    settings = dict(line.split("=", 1) for line in properties.splitlines())
    broker = f"{settings.get('host.name')}:{settings.get('port')}"
    for line in path.read_text().splitlines():
        when, separator, text = line.partition(" Completed request:")
        if separator:
            time = datetime.fromisoformat(when).replace(tzinfo=UTC)
            is_json = text.startswith('{"')
            entry = json.loads(text) if is_json else old_request_log.entry(text, broker)
            source = "envelope" if entry.get("isForwarded") else "broker"
            yield {"source": source, "time": nanoseconds(time)} | of_request(entry)


def of_request(entry: dict[str, Any]) -> Row:
    """The facts of one line of the request log."""
    header, request, response = entry["requestHeader"], entry["request"], entry.get("response")
    endpoints = CONNECTION.fullmatch(entry["connection"])
    assert endpoints is not None, entry["connection"]
    codes = (value for key, value in walk(response) if key.lower().endswith("errorcode"))
    row: Row = {
        "broker": endpoints[1],
        "client": endpoints[2],
        "api_key": header["requestApiKey"],
        "api": header["requestApiKeyName"],
        "version": header["requestApiVersion"],
        "correlation_id": header["correlationId"],
        "client_id": header["clientId"],
        "software": software(entry.get("clientInformation", {})),
        "principal": entry.get("principal"),
        "security_protocol": entry.get("securityProtocol"),
        **{name: entry.get(key) for name, key in STEPS.items()},
        "throttle_time_ms": (response or {}).get("throttleTimeMs"),
        "errors": [code for code in codes if code],
        "response_is_logged": None if "response" in entry else False,
        "record_bytes": records(request) + records(response) or None,
        **{name: request.get(key) for name, key in REQUEST_FIELDS.items()},
        "isolation_level": ISOLATION_LEVELS.get(request.get("isolationLevel")),
    }
    return {key: value for key, value in row.items() if value is not None and value != []}


def software(client_information: dict[str, str]) -> str | None:
    """Name and version, if ApiVersions has reported them."""
    return (
        None
        if client_information.get("softwareName", "unknown") == "unknown"
        else " ".join(client_information.values())
    )


def records(message: object) -> int:
    """Bytes of all record sets in a message."""
    sizes = ("recordsSizeInBytes", "recordSetSizeInBytes")
    return sum(value for key, value in walk(message) if key in sizes)


def of_node(path: Path) -> Iterator[Row]:
    """Log lines of one node that match `NODE_LINES`."""
    for line in path.read_text(errors="replace").splitlines():
        for source, pattern in NODE_LINES.items():
            if entry := pattern.match(line):
                time = datetime.fromisoformat(entry["when"]).replace(tzinfo=UTC)
                row: Row = {"source": source, "time": nanoseconds(time), "broker": path.stem}
                yield row | {"message": entry["message"]}


def of_tool(path: Path) -> Iterator[Row]:
    """The output of one administration tool."""
    for line in path.read_text(errors="replace").splitlines():
        if line.strip() and not line.startswith(LOGGERS):
            row: Row = {"source": "tool", "time": path.stat().st_mtime_ns}
            yield row | {"command": path.stem.removeprefix("tool-"), "line": line}


def of_share_groups(path: Path) -> Iterator[Row]:
    """Share groups as an administration tool listed them."""
    for line in path.read_text(errors="replace").splitlines():
        if entry := SHARED.fullmatch(line):
            yield {
                "source": "share-groups",
                "time": path.stat().st_mtime_ns,
                "group_id": entry["group"],
                "topic": entry["topic"],
                "partition": int(entry["partition"]),
                "start_offset": int(entry["start"]),
                "lag": int(entry["lag"]),
            }


def of_client(path: Path) -> Iterator[Row]:
    """The events in one client's own log."""
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith('{"source": "client"'):
            row: Row = json.loads(line)
            yield row


def of_librdkafka(path: Path) -> Iterator[Row]:
    """The facts of one client's log, if librdkafka ran with debug=protocol."""
    for line in path.read_text(errors="replace").splitlines():
        entry = LIBRDKAFKA.match(line)
        if entry and (message := MESSAGE.match(entry["text"])):
            row: Row = {
                "source": "librdkafka",
                "time": clients.nanoseconds(entry["time"]),
                "client_id": entry["client"].partition("#")[0],
                "broker": entry["broker"],
                "api": message["api"],
                "version": int(message["version"]),
                "correlation_id": int(message["correlation"]),
            }
            size = int(message["bytes"])
            if entry["event"] == "SEND":
                row["request_bytes"] = size
            else:
                row["response_bytes"] = size + RESPONSE_UNCOUNTED
            yield row | ({"rtt_ms": float(message["rtt"])} if message["rtt"] else {})


def walk(tree: object) -> Iterator[tuple[str, Any]]:
    """Each key and plain value in a JSON tree, in order."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if isinstance(value, dict | list):
                yield from walk(value)
            else:
                yield key, value
    elif isinstance(tree, list):
        for item in tree:
            yield from walk(item)


def nanoseconds(time: datetime) -> int:
    """ns since 1970, exact."""
    return int(time.timestamp()) * 10**9 + time.microsecond * 1000


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write facts, in order of time."""
    lines = (
        json.dumps(row, separators=(",", ":")) for row in sorted(rows, key=lambda r: r["time"])
    )
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(zstandard.ZstdCompressor(level=19).compress(text.encode()))


def read(name: str) -> list[Row]:
    """The facts of a committed capture, by its name without suffixes."""
    packed = (CAPTURES / f"{name}.truth.jsonl.zst").read_bytes()
    text = zstandard.ZstdDecompressor().decompress(packed).decode()
    return [json.loads(line) for line in text.splitlines()]

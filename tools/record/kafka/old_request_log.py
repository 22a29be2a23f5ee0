"""The lines of request logs before Kafka 2.7, which are not JSON (KIP-673).

`entry` returns the fields of a line under the names that the log has had since then. A line has one
of three forms, according to the class of the request in that release:

    Name: FetchRequest; Version: 0; CorrelationId: 0; ClientId: reader; MaxWait: 1000 ms; ...
    {api_key=1,api_version=5,correlation_id=1,client_id=reader} -- {max_wait_time=1000,...}
    RequestHeader(apiKey=FETCH, apiVersion=7, ...) -- {max_wait_time=1000,...},response:{...}

Then follow the connection, before 0.9 only the client's end of it, and the durations, until 0.10 in
whole milliseconds. Only the third form has the response.
"""

from __future__ import annotations

import re
from typing import Any

from dissector.protocol.registry import apis

LINE = re.compile(
    r"(?P<message>.*) from (?:connection (?P<connection>\S+?)|client /(?P<client>\S+?));"
    r"(?P<times>totalTime:.*)"
)
HEADERS = (
    re.compile(
        r"Name: ?(?P<name>\w+)Request; ?Version: ?(?P<version>\d+); ?(?:\w+:\d+;)*"
        r"CorrelationId: ?(?P<correlation>\d+);(?: ?ClientId: ?(?P<client>[^;]*);)?(?P<body>.*)"
    ),
    re.compile(
        r"\{api_key=(?P<key>\d+),api_version=(?P<version>\d+),correlation_id=(?P<correlation>\d+),"
        r"client_id=(?P<client>.*?)\} -- (?P<body>.*)"
    ),
    re.compile(
        r"RequestHeader\(apiKey=(?P<name>\w+), apiVersion=(?P<version>\d+), "
        r"clientId=(?P<client>.*?), correlationId=(?P<correlation>\d+)\) -- "
        r"(?P<body>.*?)(?:,response:(?P<response>.*))?"
    ),
)


def underscored(name: str) -> str:
    """The name of an API as the log has it: ListOffsets is LIST_OFFSETS."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


KEYS = {underscored(name): key for key, name in apis().items()}
NAMES = {key: name for name, key in KEYS.items()}
OLD_NAMES = {
    "Producer": "PRODUCE",
    "Offset": "LIST_OFFSETS",
    "TopicMetadata": "METADATA",
    "ConsumerMetadata": "FIND_COORDINATOR",
    "GroupCoordinator": "FIND_COORDINATOR",
}
FIELDS = {
    "acks": ("RequiredAcks", "acks"),
    "maxWaitMs": ("MaxWait", "max_wait_time"),
    "minBytes": ("MinBytes", "min_bytes"),
    "maxBytes": ("MaxBytes", "max_bytes"),
    "isolationLevel": ("isolation_level",),
    "rackId": ("rack_id",),
    "groupId": ("GroupId", "group_id", "consumer_group_id"),
    "memberId": ("MemberId", "ConsumerId", "member_id"),
    "transactionalId": ("transactional_id",),
}
DURATIONS = (
    *("totalTime", "requestQueueTime", "localTime", "remoteTime", "throttleTime"),
    *("responseQueueTime", "sendTime"),
)
NUMBERS = ("acks", "maxWaitMs", "minBytes", "maxBytes", "isolationLevel")
FIELD = re.compile(r"(\w+)(?:=|: ?)([^,;{}]*)")
LISTED = re.compile(r"\[[^\[\]]*\]")
RECORDS = re.compile(r"(?:\[[^\]]*\] -> |-\d+=)(\d+)")
"""The size of the records of a partition in a Produce request."""


def entry(line: str, broker: str) -> dict[str, Any]:
    """A line of the log after `Completed request:`. `broker`: address and port of the node."""
    parts = LINE.fullmatch(line)
    assert parts, line
    matches = (header.fullmatch(parts["message"]) for header in HEADERS)
    header = next(match.groupdict() for match in matches if match)
    key = int(header["key"]) if header.get("key") else key_of(header["name"])
    times = dict(each.split(":", 1) for each in parts["times"].split(","))
    read = {
        "requestHeader": {
            "requestApiKey": key,
            "requestApiKeyName": NAMES[key],
            "requestApiVersion": int(header["version"]),
            "correlationId": int(header["correlation"]),
            "clientId": client_id(header["client"]),
        },
        "request": request(header["body"], is_produce=key == 0),
        "connection": parts["connection"] or f"{broker}-{parts['client']}",
        **{f"{name}Ms": number(text) for name, text in times.items() if name in DURATIONS},
        "principal": times.get("principal"),
        "securityProtocol": times.get("securityProtocol"),
    }
    if header.get("response") is not None:
        read["response"] = response(header["response"])
    return read


def key_of(name: str) -> int:
    """The key of an API, by the name of its request or by its own."""
    if name in OLD_NAMES:
        name = OLD_NAMES[name]
    return KEYS[underscored(name)]


def client_id(text: str | None) -> str | None:
    """The id in a header; ControlledShutdown v1 prints a Scala option."""
    option = re.fullmatch(r"Some\((.*)\)|None", text or "")
    return option[1] if option else text


def request(body: str, *, is_produce: bool) -> dict[str, Any]:
    """The fields of a request that `FIELDS` names, and the size of its records."""
    flat = body
    while LISTED.search(flat):
        flat = LISTED.sub("", flat)
    fields = dict(FIELD.findall(flat))
    read: dict[str, Any] = {}
    for name, old_names in FIELDS.items():
        text = next((fields[each] for each in old_names if each in fields), "null")
        if text != "null":
            read[name] = number(text.split()[0]) if name in NUMBERS else text
    if is_produce:
        read["recordsSizeInBytes"] = sum(int(size) for size in RECORDS.findall(body))
    return read


def response(body: str) -> dict[str, Any]:
    """The error codes of a response, in their order, and its throttle time."""
    throttled = re.search(r"\bthrottle_time_ms=(\d+)", body)
    codes = [{"errorCode": int(code)} for code in re.findall(r"\berror_code=(-?\d+)", body)]
    return {"throttleTimeMs": int(throttled[1]) if throttled else None, "errors": codes}


def number(text: str) -> int | float:
    """A number as it is printed: an integer, or with digits after a point."""
    return float(text) if "." in text else int(text)

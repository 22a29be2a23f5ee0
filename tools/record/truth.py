"""Requests as clients logged them: the facts that captures are tested by.

    python -m tools.record.truth NAME...            writes captures/NAME.truth.jsonl.zst
    python -m tools.record.truth --check NAME...    1 if one differs from its logs

Nothing here reads a capture: facts come from the logs alone, `captures/NAME.KIND.log.zst`, one JSON
object a line, one line for each request, in order of time:

    source            librdkafka, aiokafka, kafka-python: the client that logged it
    client_id         as configured
    connection        name of a TCP connection, unique in its capture; absent if not in the log
    client_port       the client's port on it; only kafka-python logs it
    broker            address:port of the broker
    api, version      the API's name as in Kafka's protocol guide; the version of both messages
    correlation_id
    time              ns; when the request was logged
    request_bytes     with the 4-byte length; absent if not in the log
    response_time     ns; when the response was logged, after its last byte; absent if the client
                      read no response: acks=0, a timeout, a lost connection, a response that it
                      could not decode
    response_bytes    with the 4-byte length; absent if not in the log
    rtt_ms            as the client measured it; absent like the response

How each log counts bytes, determined by comparison with the bytes on the wire:

librdkafka     "Sent … (v7, N bytes": N is the whole request with its 4-byte length. "Received …
               (v7, N bytes": N excludes the length and the correlation id, 8 bytes in all. The
               request is logged after its last byte was sent, the response after its last byte was
               read; rtt is the time between. Times are in ms, rounded down; rtt in hundredths. A
               retry is a new request with a new correlation id. Correlation ids continue after a
               reconnect: a connection begins with "Connected (#n)".
kafka-python   "sent N bytes", "received N bytes" count socket bytes, so sizes are known if only one
               request was in flight. The name of a connection has the client's port. The
               request is logged before it is sent; rtt begins before it is encoded, and ends before
               the response is logged.
aiokafka       No sizes, and no name for a connection. The request is logged after the bytes went to
               the socket, the response after it was decoded; rtt is the difference, made here.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import zstandard

CAPTURES = Path(__file__).parents[2] / "captures"
RESPONSE_UNCOUNTED = 8
"""librdkafka reports a response without its length and correlation id."""


@dataclass(slots=True, kw_only=True)
class Fact:
    """One request, and its response if the client read one; the fields are explained above."""

    source: str
    client_id: str
    connection: str | None = None
    client_port: int | None = None
    broker: str
    api: str
    version: int
    correlation_id: int
    time: int
    request_bytes: int | None = None
    response_time: int | None = None
    response_bytes: int | None = None
    rtt_ms: float | None = None

    @property
    def broker_port(self) -> int:
        """The port of the broker."""
        return int(self.broker.rpartition(":")[2])


def nanoseconds(seconds: str) -> int:
    """Decimal seconds as a log prints them, exact."""
    whole, _, fraction = seconds.partition(".")
    return int(whole) * 10**9 + int(fraction.ljust(9, "0"))


LIBRDKAFKA = re.compile(
    r"%\d\|(?P<time>[\d.]+)\|(?P<event>SEND|RECV|CONNECT|CONNECTED)\|(?P<client>[^|]*)\| "
    r"\[thrd:(?P<thread>.*?)\]: (?P<broker>\S+): (?P<text>.*)"
)
MESSAGE = re.compile(
    r"(?:Sent|Received) (?P<api>\w+?)(?:Request)?(?:Request|Response) \(v(?P<version>\d+), "
    r"(?P<bytes>\d+) bytes(?: @ \d+)?, CorrId (?P<correlation>\d+)(?:, rtt (?P<rtt>[\d.]+)ms)?\)"
)
CONNECTING = re.compile(r"Connecting to ipv[46]#(?P<address>\S+) ")
LIBRDKAFKA_NAMES = {"ApiVersion": "ApiVersions"}


def of_librdkafka(lines: Iterable[str]) -> Iterator[Fact]:
    """The facts of a log with ``debug=broker,protocol``."""
    address: dict[tuple[str, str], str] = {}
    made: Counter[tuple[str, str]] = Counter()
    waiting: dict[tuple[str, str, int], Fact] = {}
    for line in lines:
        if not (entry := LIBRDKAFKA.match(line)):
            continue
        # A thread serves one broker object, with one connection at a time; "host:9092/bootstrap"
        # and "host:9092/1" are two, and "GroupCoordinator" is the coordinator at this time.
        client, thread, text = entry["client"], entry["thread"], entry["text"]
        here = (client, thread)
        if connecting := CONNECTING.match(text):
            address[here] = connecting["address"]
        elif text.startswith("Connected (#"):
            made[here] += 1
        elif message := MESSAGE.match(text):
            key = (client, thread, int(message["correlation"]))
            time = nanoseconds(entry["time"])
            if entry["event"] == "SEND":
                waiting[key] = Fact(
                    source="librdkafka",
                    client_id=client.rpartition("#")[0],
                    connection=f"{client} {thread} #{made[here]}",
                    broker=address[here],
                    api=LIBRDKAFKA_NAMES.get(message["api"], message["api"]),
                    version=int(message["version"]),
                    correlation_id=key[2],
                    time=time,
                    request_bytes=int(message["bytes"]),
                )
                yield waiting[key]
            else:
                fact = waiting.pop(key)
                fact.response_time = time
                fact.response_bytes = int(message["bytes"]) + RESPONSE_UNCOUNTED
                fact.rtt_ms = float(message["rtt"])


PYTHON = re.compile(r"(?P<time>[\d.]+)\|(?P<client>[^|]*)\|(?P<thread>[^|]*)\|(?P<logger>[^|]*)\|")
AIOKAFKA = re.compile(
    r"(?P<way>Request to|Response from) (?P<broker>\S+) (?P<correlation>\d+): "
    r"(?P<api>\w+?)(?:Request|Response)_v(?P<version>\d+)\("
)
AIOKAFKA_NAMES = {"ApiVersion": "ApiVersions", "Offset": "ListOffsets"}


def of_aiokafka(lines: Iterable[str]) -> Iterator[Fact]:
    """The facts of a log of ``aiokafka.conn``.

    Two connections of one client to one broker may both wait for the same correlation id: the
    response belongs to the request of the same API and version that has waited longest.
    """
    waiting: dict[tuple[str, ...], deque[Fact]] = {}
    for line in lines:
        if not (head := PYTHON.match(line)) or not (entry := AIOKAFKA.match(line, head.end())):
            continue
        time = nanoseconds(head["time"])
        key = (head["client"], *entry.group("broker", "api", "version", "correlation"))
        if entry["way"] == "Request to":
            fact = Fact(
                source="aiokafka",
                client_id=head["client"],
                broker=entry["broker"],
                api=AIOKAFKA_NAMES.get(entry["api"], entry["api"]),
                version=int(entry["version"]),
                correlation_id=int(entry["correlation"]),
                time=time,
            )
            waiting.setdefault(key, deque()).append(fact)
            yield fact
        else:
            fact = waiting[key].popleft()
            fact.response_time = time
            fact.rtt_ms = round((time - fact.time) / 1e6, 3)


KAFKA_PYTHON = re.compile(
    r"<Kafka(?:Connection node_id=\S+ host=|TCPTransport )\[(?P<broker>\S+)<-(?P<port>\d+)\]"
    r"[^>]*>:? (?:(?P<made>Connection made)|(?P<moved>sent|received) (?P<bytes>\d+) bytes|"
    r"(?P<way>Request|Response) (?P<correlation>\d+)(?: \((?P<rtt>[\d.]+) ms\))?: "
    r"(?P<api>\w+?)(?:Request|Response)\(version=(?P<version>\d+))"
)


@dataclass(slots=True)
class Transfer:
    """Requests and bytes in flight on one of kafka-python's connections."""

    unsent: list[Fact] = field(default_factory=list)
    """Written since the socket last took bytes."""
    in_flight: dict[int, Fact] = field(default_factory=dict)
    answered: list[Fact] = field(default_factory=list)
    """Since the last moment with nothing in flight; so are the two counts."""
    sent: int = 0
    received: int = 0

    def answer(self, correlation_id: int) -> Fact:
        """A response was read; if nothing is in flight, all counted bytes belong to it."""
        fact = self.in_flight.pop(correlation_id)
        self.answered.append(fact)
        if not self.in_flight:
            if len(self.answered) == 1:
                fact.request_bytes, fact.response_bytes = self.sent, self.received
            self.answered.clear()
            self.sent = self.received = 0
        return fact


def client_id(head: re.Match[str]) -> str:
    """A client's own thread has its name; before it runs, the creating thread has it."""
    if name := re.fullmatch(r"kafka-io-(?P<io>.+)|(?P<network>.+)-network-thread", head["thread"]):
        return name["io"] or name["network"]
    return head["client"]


def of_kafka_python(lines: Iterable[str]) -> Iterator[Fact]:
    """The facts of a log of ``kafka.net.connection`` and ``kafka.net.transport``.

    A request counts once its bytes are sent. If the connection breaks before, there is no fact.
    """
    transfers: dict[str, Transfer] = {}
    for line in lines:
        if not (head := PYTHON.match(line)) or not (entry := KAFKA_PYTHON.match(line, head.end())):
            continue
        if entry["made"]:
            transfers[entry["port"]] = Transfer()
        transfer = transfers[entry["port"]]
        time = nanoseconds(head["time"])
        if entry["moved"] == "sent":
            transfer.sent += int(entry["bytes"])
            yield from transfer.unsent
            transfer.unsent.clear()
        elif entry["moved"] == "received":
            transfer.received += int(entry["bytes"])
        elif entry["way"] == "Request":
            fact = Fact(
                source="kafka-python",
                client_id=client_id(head),
                connection=entry["port"],
                client_port=int(entry["port"]),
                broker=entry["broker"],
                api=entry["api"],
                version=int(entry["version"]),
                correlation_id=int(entry["correlation"]),
                time=time,
            )
            transfer.unsent.append(fact)
            transfer.in_flight[fact.correlation_id] = fact
        elif entry["way"] == "Response":
            fact = transfer.answer(int(entry["correlation"]))
            fact.response_time = time
            fact.rtt_ms = round(float(entry["rtt"]), 3)


READERS: dict[str, Callable[[Iterable[str]], Iterator[Fact]]] = {
    "aiokafka": of_aiokafka,
    "kafka-python": of_kafka_python,
    "librdkafka": of_librdkafka,
}


def derive(name: str, folder: Path = CAPTURES) -> list[Fact]:
    """All facts in the logs of one capture, in order of time."""
    facts: list[Fact] = []
    for kind, reader in READERS.items():
        path = folder / f"{name}.{kind}.log.zst"
        if path.exists():
            log = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()
            facts += reader(log.decode(errors="replace").splitlines())
    return sorted(facts, key=lambda fact: fact.time)


def text_of(facts: Iterable[Fact]) -> str:
    """Facts as they are stored: JSON lines without unknown values."""
    rows = ({k: v for k, v in asdict(fact).items() if v is not None} for fact in facts)
    return "".join(f"{json.dumps(row, separators=(',', ':'))}\n" for row in rows)


def write(name: str) -> int:
    """Write the truth of one capture; return its number of requests."""
    facts = derive(name)
    packed = zstandard.ZstdCompressor(level=19).compress(text_of(facts).encode())
    (CAPTURES / f"{name}.truth.jsonl.zst").write_bytes(packed)
    return len(facts)


def agrees(name: str) -> bool:
    """Whether the truth of one capture agrees with its logs."""
    packed = (CAPTURES / f"{name}.truth.jsonl.zst").read_bytes()
    return zstandard.ZstdDecompressor().decompress(packed).decode() == text_of(derive(name))


def main() -> int:
    """Write or check the truth of the named captures; by default, of all that have logs."""
    parser = argparse.ArgumentParser(prog="python -m tools.record.truth")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("name", nargs="*", help="a capture, without its suffix")
    options = parser.parse_args()
    names = options.name or sorted({p.name.split(".")[0] for p in CAPTURES.glob("*.log.zst")})
    status = 0
    for name in names:
        if options.check:
            good = agrees(name)
            status |= not good
            print(f"{name}: {'agrees' if good else 'differs from its logs'}")
        else:
            print(f"{name}: {write(name)} requests")
    return status


if __name__ == "__main__":
    sys.exit(main())

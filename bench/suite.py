"""What is measured: the sections of the results, in their order.

Two loads decide. **Bulk** is large produce and fetch messages in packets of 1,500 bytes;
**chatter** is small requests and responses, hundreds of thousands of them. **Older** is chatter of
a client of 2018, whose versions tshark can decode to their end, as it cannot today's. Each section
gives its series of runs, by input and program; `report` makes tables and marks of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure import Say, Series, in_turn, warm
from bench.peers import FLOOR, OURS, PEERS, PROGRAM, command, export

HERE = Path(__file__).parent
DATA = HERE / "data"
OUTPUT = DATA / "out.parquet"
CAPTURES = HERE.parent / "captures"
RECORDINGS = {
    "bulk": CAPTURES / "bulk-tansu.pcap.zst",
    "chatter": CAPTURES / "chatter-mock.pcap.zst",
    "older": CAPTURES / "kafka-3-java-2-0.pcap.zst",
}
SIZES = {
    "bulk": {"connections": 60, "bytes": 1_000_000_000},
    "chatter": {"connections": 500, "messages": 500_000},
    "older": {"connections": 500, "messages": 500_000},
}
PARTS = {
    "bulk": {"connections": 4, "bytes": 10_000_000},
    "chatter": {"connections": 2, "messages": 2_000},
    "older": {"connections": 30, "messages": 2_000},
}
TABLES = (
    *("exchanges", "errors", "connections", "topics", "problems", "batches", "records"),
    *("partitions", "memberships", "transactions"),
)
QUERY = "select client_id, quantile_cont(latency_ms, 0.99) from exchanges group by all"
TIMES = {"bulk": (1.0, 0.5, 2.0), "chatter": (1.0, 2.0, 4.0)}
"""Sizes of each load, against that which the peers read. A round of chatter cannot be halved."""
CONNECTIONS = (50, 500, 5_000)
OWN_ROUNDS = 3
"""For what is only compared with itself."""


@dataclass(frozen=True, slots=True)
class Large:
    """An input that lies ready."""

    path: Path
    packets: int
    bytes: int
    messages: int
    connections: int
    broker_ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """How much is run."""

    scale: float
    rounds: int
    say: Say


@dataclass(slots=True)
class Results:
    """All that was measured, for `report`."""

    inputs: dict[str, Large] = field(default_factory=dict)
    """By name: bulk, chatter, bulk-x2, connections-50 and so on."""
    peers: dict[str, dict[str, Series]] = field(default_factory=dict)
    """By load and program."""
    tables: dict[str, Series] = field(default_factory=dict)
    """Chatter, by table."""
    sizes: dict[str, Series] = field(default_factory=dict)
    """By input."""
    start: dict[str, Series] = field(default_factory=dict)
    """What nearly no input takes, by what was run."""
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    """Processes that wanted a core before the first run; not near 0, and no time is clean."""
    inside: dict[str, str] = field(default_factory=dict)
    """What was measured within one process: what `bench.records` and `bench.messages` printed."""


def make(options: Options, name: str, recording: str, sizes: Mapping[str, int]) -> Large:
    """An input, made by another process so that this one stays small; warm."""
    name += f"-at-{options.scale:g}" * (options.scale != 1)
    options.say(f"input {name}")
    numbers = [word for key, size in sizes.items() for word in (f"--{key}", str(size))]
    line = [sys.executable, "-m", "bench.inputs", name, str(RECORDINGS[recording]), *numbers]
    content = json.loads(subprocess.run(line, check=True, capture_output=True).stdout)
    path = DATA / f"{name}.pcap"
    warm(path)
    return Large(
        path,
        content["packets"],
        content["bytes"],
        content["messages"],
        content["connections"],
        tuple(content["broker_ports"]),
    )


def scaled(options: Options, sizes: Mapping[str, int], times: float = 1.0) -> dict[str, int]:
    """Sizes of an input as asked for; `times` makes it longer, and leaves its connections."""
    return {
        key: round(size * options.scale * (1.0 if key == "connections" else times))
        for key, size in sizes.items()
    }


def sized(load: str, times: float) -> str:
    """Name of a load that is so many times as long; the load's own where it is as it is."""
    return load if times == 1.0 else f"{load}-x{times:g}"


def compare(options: Options, results: Results, load: str) -> None:
    """All peers on one load."""
    whole = make(options, load, load, scaled(options, SIZES[load]))
    part = make(options, f"{load}-part", load, PARTS[load])
    results.inputs |= {load: whole, f"{load}-part": part}
    commands = {}
    for peer in PEERS:
        large = part if peer.on_part else whole
        commands[peer.name] = command(peer.name, large.path, large.broker_ports, OUTPUT)
    results.peers[load] = in_turn(commands, options.rounds, options.say)


def tables(options: Options, results: Results) -> None:
    """Each table of chatter, and the summary."""
    chatter = make(options, "chatter", "chatter", scaled(options, SIZES["chatter"])).path
    commands = {table: export(chatter, table, OUTPUT) for table in TABLES}
    commands["summary"] = [PROGRAM, "summary", str(chatter), "--jobs", "1"]
    commands["sql"] = [PROGRAM, "sql", str(chatter), QUERY]
    results.tables = in_turn(commands, min(options.rounds, OWN_ROUNDS), options.say)


def sizes(options: Options, results: Results) -> None:
    """Time and memory against the size of the file, and the number of connections."""
    commands = {}
    for load, lengths in TIMES.items():
        size = SIZES[load]
        for times in lengths:
            name = sized(load, times)
            large = make(options, name, load, scaled(options, size, times))
            results.inputs[name] = large
            commands[name] = export(large.path, "exchanges", OUTPUT)
    for connections in CONNECTIONS:
        name = f"connections-{connections}"
        # Short bodies, so that as many messages fit into the most connections.
        size = {"connections": connections, "messages": 300_000, "longest": 60}
        large = make(options, name, "chatter", size)
        results.inputs[name] = large
        commands[name] = export(large.path, "exchanges", OUTPUT)
    results.sizes = in_turn(commands, min(options.rounds, OWN_ROUNDS), options.say)


def start(options: Options, results: Results) -> None:
    """What is left when there is nearly nothing to do."""
    small = make(options, "small", "chatter", {"connections": 1, "messages": 1})
    commands: dict[str, Sequence[str]] = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import numpy, pyarrow": [sys.executable, "-c", "import numpy, pyarrow"],
        "import dissector": [sys.executable, "-c", "import dissector"],
        "import analysis": [sys.executable, "-c", "import analysis"],
        f"{OURS} --help": [PROGRAM, "--help"],
        f"{OURS} export": command(OURS, small.path, small.broker_ports, OUTPUT),
        f"{FLOOR} -w /dev/null": command(FLOOR, small.path, small.broker_ports, OUTPUT),
    }
    results.inputs["small"] = small
    results.start = in_turn(commands, min(options.rounds, OWN_ROUNDS), options.say)


def inside(options: Options, results: Results, what: str, *words: str) -> None:
    """What a module of its own measures: messages or records against clients' decoders, Spark."""
    options.say(what)
    line = [sys.executable, "-m", f"bench.{what}", *words]
    found = subprocess.run(line, capture_output=True, text=True)
    lines = (found.stdout if found.returncode == 0 else found.stderr).strip().splitlines()
    results.inside[what] = "\n".join(lines if found.returncode == 0 else lines[-1:])

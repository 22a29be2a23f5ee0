"""The measurements: the sections of the results, in order.

Two loads matter most. **Bulk** is large produce and fetch messages in packets of 1,500 bytes.
**Chatter** is hundreds of thousands of small requests and responses. **Older** is chatter of a
client of 2018, whose versions tshark can decode completely, unlike current ones. **Random** is
chatter with random field values, one message in a packet. Each section gives series of runs, by
input and program; `report` makes tables and goals of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.measure import Progress, Series, in_turn, run, warm
from bench.pcap import Content, divide
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
"""By load; random has none, because it is generated."""
SIZES = {
    "bulk": {"connections": 60, "bytes": 1_000_000_000},
    "chatter": {"connections": 500, "messages": 500_000},
    "older": {"connections": 500, "messages": 500_000},
    "random": {"connections": 500, "messages": 800_000},
}
PARTS = {
    "bulk": {"connections": 4, "bytes": 10_000_000},
    "chatter": {"connections": 2, "messages": 2_000},
    "older": {"connections": 30, "messages": 2_000},
    "random": {"connections": 2, "messages": 2_000},
}
TABLES = (
    *("exchanges", "errors", "connections", "topics", "problems", "batches", "records"),
    *("partitions", "memberships", "transactions"),
)
QUERY = "select client_id, quantile_cont(latency_ms, 0.99) from exchanges group by all"
TIMES = {"bulk": (1.0, 0.5, 2.0), "chatter": (1.0, 2.0, 4.0)}
"""Sizes of each load, relative to that of the peers. A round of chatter cannot be halved."""
ANSWERS = sorted(path.stem for path in (HERE.parent / "analysis/answers").glob("[!_]*.py"))
FILES = 2_000
IN_FILES = "chatter-files"
"""The name of chatter in this number of files."""
CONNECTIONS = (50, 500, 5_000)
INSIDE = ("messages", "records", "spark")
"""The modules that measure inside a process."""
OWN_ROUNDS = 3
"""Rounds of measurements of the project alone."""


@dataclass(frozen=True, slots=True)
class Large(Content):
    """An input file."""

    path: Path


@dataclass(frozen=True, slots=True)
class Options:
    """Size and rounds of the benchmark."""

    scale: float
    rounds: int
    progress: Progress


@dataclass(slots=True)
class Results:
    """All results, for `report`."""

    inputs: dict[str, Large] = field(default_factory=dict)
    """By name: bulk, chatter, bulk-x2, connections-50 and so on."""
    peers: dict[str, dict[str, Series]] = field(default_factory=dict)
    """By load and program."""
    tables: dict[str, Series] = field(default_factory=dict)
    """Chatter, by table."""
    answers: dict[str, dict[str, Series]] = field(default_factory=dict)
    """From the capture and from exported tables, by answer; runs on the longest chatter."""
    sizes: dict[str, Series] = field(default_factory=dict)
    """By input."""
    start: dict[str, Series] = field(default_factory=dict)
    """Runs on a tiny input, by program."""
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    """System load before the first run; it should be near 0."""
    inside: dict[str, str] = field(default_factory=dict)
    """Output of modules that measure inside a process, such as `bench.records`."""


def make(options: Options, name: str, recording: str, sizes: Mapping[str, int]) -> Large:
    """An input in the page cache, made by another process so that this one stays small."""
    name += f"-at-{options.scale:g}" * (options.scale != 1)
    options.progress(f"input {name}")
    numbers = [word for key, size in sizes.items() for word in (f"--{key}", str(size))]
    source = [str(RECORDINGS[recording])] if recording in RECORDINGS else []
    line = [sys.executable, "-m", "bench.inputs", name, *source, *numbers]
    content = json.loads(subprocess.run(line, check=True, capture_output=True).stdout)
    path = DATA / f"{name}.pcap"
    warm(path)
    return Large(**content, path=path)


def scaled(options: Options, sizes: Mapping[str, int], times: float = 1.0) -> dict[str, int]:
    """Sizes of an input; `times` makes it longer with the same connections."""
    return {
        key: round(size * options.scale * (1.0 if key == "connections" else times))
        for key, size in sizes.items()
    }


def sized(load: str, times: float) -> str:
    """The name of a load that is `times` as long."""
    return load if times == 1.0 else f"{load}-x{times:g}"


def compare(options: Options, results: Results, load: str) -> None:
    """Run all peers on one load."""
    whole = make(options, load, load, scaled(options, SIZES[load]))
    part = make(options, f"{load}-part", load, PARTS[load])
    results.inputs |= {load: whole, f"{load}-part": part}
    commands = {}
    for peer in PEERS:
        large = part if peer.on_part else whole
        commands[peer.name] = command(peer.name, large.path, large.broker_ports, OUTPUT)
    results.peers[load] = in_turn(commands, options.rounds, options.progress)


def tables(options: Options, results: Results) -> None:
    """Run each table of chatter, and the summary."""
    chatter = make(options, "chatter", "chatter", scaled(options, SIZES["chatter"])).path
    commands = {table: export(chatter, table, OUTPUT) for table in TABLES}
    commands["summary"] = [PROGRAM, "summary", str(chatter), "--jobs", "1"]
    commands["sql"] = [PROGRAM, "sql", str(chatter), QUERY]
    results.tables = in_turn(commands, min(options.rounds, OWN_ROUNDS), options.progress)


def answers(options: Options, results: Results) -> None:
    """Run each answer once on the longest chatter: on the capture, and on its exported tables."""
    times = TIMES["chatter"][-1]
    name = sized("chatter", times)
    large = make(options, name, "chatter", scaled(options, SIZES["chatter"], times))
    results.inputs[name] = large
    tables = DATA / f"{large.path.stem}-tables"
    options.progress(f"tables of {name}")
    run(export(large.path, "all", tables))
    for source in (large.path, tables):
        commands = {answer: [PROGRAM, answer, str(source)] for answer in ANSWERS}
        results.answers[source.name] = in_turn(commands, 1, options.progress)


def sizes(options: Options, results: Results) -> None:
    """Time and memory by file size and number of connections."""
    commands = {}
    for load, lengths in TIMES.items():
        size = SIZES[load]
        for times in lengths:
            name = sized(load, times)
            large = make(options, name, load, scaled(options, size, times))
            results.inputs[name] = large
            commands[name] = export(large.path, "exchanges", OUTPUT)
    whole = results.inputs["chatter"]
    results.inputs[IN_FILES] = replace(whole, path=DATA / IN_FILES)
    options.progress(f"input {IN_FILES}")
    divide(whole.path, DATA / IN_FILES, FILES)
    commands[IN_FILES] = export(DATA / IN_FILES, "exchanges", OUTPUT)
    for connections in CONNECTIONS:
        name = f"connections-{connections}"
        # Short bodies, so that as many messages fit into the most connections.
        size = {"connections": connections, "messages": 300_000, "longest": 60}
        large = make(options, name, "chatter", size)
        results.inputs[name] = large
        commands[name] = export(large.path, "exchanges", OUTPUT)
    results.sizes = in_turn(commands, min(options.rounds, OWN_ROUNDS), options.progress)


def start(options: Options, results: Results) -> None:
    """Start-up times, on a tiny input."""
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
    results.start = in_turn(commands, min(options.rounds, OWN_ROUNDS), options.progress)


def inside(options: Options, results: Results, name: str) -> None:
    """Run a module of `INSIDE`."""
    options.progress(name)
    words = ["--print", "--scale", f"{options.scale:g}"] if name == "spark" else []
    line = [sys.executable, "-m", f"bench.{name}", *words]
    result = subprocess.run(line, capture_output=True, text=True)
    lines = (result.stdout if result.returncode == 0 else result.stderr).strip().splitlines()
    results.inside[name] = "\n".join(lines if result.returncode == 0 else lines[-1:])

"""CPU time by stage in one process: `python -m bench.where CAPTURE`.

The capture is read as by `export --table exchanges --format parquet`. A clock wraps each function
that starts a stage. The time of a stage excludes that of the stages that it calls. These functions
run once per block, or once per kind of message in a block, so the clocks cost nothing. They count
the CPU time of their own thread: Parquet is encoded in another thread than the other stages. The
minimum of several rounds is taken. The floor is the time to read the bytes of the file without
looking at them.

With `--page FILE` the table replaces the one in the page between the lines ``<!-- where NAME -->``,
with the name of the capture, and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import importlib
import pstats
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.report import MB, table

STAGES = {
    "packets: read bytes": ("dissector.packets.formats.byte_input:ByteInput.fill",),
    "packets: record headers": ("dissector.packets.formats.pcap:Pcap.scan",),
    "packets: link, IP, TCP": ("dissector.packets.files:parse_packets",),
    "packets: other": ("dissector.packets.files:FileSource.read",),
    "streams: connections": ("dissector.streams.connections.flows:FlowTracker.assign",),
    "streams: reassembly": ("dissector.streams.reassembly.reassembler:Reassembler.feed",),
    "streams: detection": (
        "dissector.streams.detection.detector:ProtocolDetector.decide",
        "dissector.streams.detection.detector:ProtocolDetector.seek",
    ),
    "streams: frames": ("dissector.streams.frame_chain:FrameChains.walk",),
    "streams: other": (
        "dissector.streams.streaming:Streams.feed",
        "dissector.streams.streaming:Streams.finish",
    ),
    "exchanges: headers": (
        "dissector.exchanges.correlator:headers_of",
        "dissector.exchanges.correlator:read_request_headers",
        "dissector.exchanges.correlator:response_bodies",
    ),
    "exchanges: bodies": ("dissector.exchanges.decoded_fields:decode_fields",),
    "exchanges: match": (
        "dissector.exchanges.matching:Matcher.match",
        "dissector.exchanges.matching:in_flight",
    ),
    "exchanges: request table": ("dissector.exchanges.correlator:request_table",),
    "exchanges: other": ("dissector.exchanges.correlator:Correlator.feed",),
    "tables: topic names": (
        "dissector.exchanges.topic_names:TopicNames.learn",
        "dissector.tables.finalizer:Finalizer.add",
        "dissector.tables.finalizer:Finalizer.finish",
    ),
    "tables: brokers": ("dissector.tables.connections:Connections.learn",),
    "tables: rows of exchanges": ("dissector.tables.exchanges:exchanges",),
    "tables: Parquet": ("analysis.export.parquet:ParquetFile._encode",),
}
"""By stage: the functions that start it, as module and name."""
BETWEEN = "between stages"
FLOOR = "floor: read the file"
PIECE = 1 << 20


class _Laps(threading.local):
    """The stages that run in a thread, and when it started the last of them."""

    def __init__(self) -> None:
        self.running = [BETWEEN]
        self.since = time.thread_time()


class Clock:
    """CPU seconds by stage, of all threads. Starting a stage pauses the one around it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._laps = _Laps()

    def lap(self) -> None:
        """Add the time of this thread since its last call to its running stage."""
        now = time.thread_time()
        self.seconds[self._laps.running[-1]] += now - self._laps.since
        self._laps.since = now

    def watch(self, stage: str, place: str) -> None:
        """Add the time of the function at `place` to `stage`."""
        owner, name = locate(place)
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            self.lap()
            self._laps.running.append(stage)
            self.calls[stage] += 1
            try:
                return function(*arguments, **named)
            finally:
                self.lap()
                self._laps.running.pop()

        setattr(owner, name, timed)


def locate(place: str) -> tuple[Any, str]:
    """The owner of the function that `place` names, and the name of the function."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    return functools.reduce(getattr, owners, importlib.import_module(module)), name


def floor(path: Path) -> float:
    """CPU seconds to read a file repeatedly into the same memory."""
    begin, piece = time.process_time(), bytearray(PIECE)
    with path.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass
    return time.process_time() - begin


def export(path: Path) -> tuple[int, int]:
    """Write the `exchanges` of a capture to Parquet; returns numbers of packets and exchanges."""
    import pyarrow as pa

    from analysis.export.formats import FORMATS
    from dissector.packets import open_packets
    from dissector.pipeline import Pipeline
    from dissector.tables import TABLES
    from dissector.tables.arrow import with_dictionaries

    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for _, batch in pipeline.stream(["exchanges"], dictionaries=True):
            rows += len(batch)
            yield batch

    pipeline = Pipeline(open_packets([path]))
    schema = with_dictionaries(TABLES["exchanges"].schema)
    FORMATS["parquet"](counted(), schema, pa.BufferOutputStream())
    return pipeline.packets, rows


def stages(path: Path, rounds: int) -> str:
    """A table of the minimum time of each stage."""
    clock = Clock()
    for stage, places in STAGES.items():
        for place in places:
            clock.watch(stage, place)
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        seconds[FLOOR].append(floor(path))
        clock.lap()
        clock.seconds.clear()
        clock.calls.clear()
        packets, rows = export(path)
        clock.lap()
        for stage in (*STAGES, BETWEEN):
            seconds[stage].append(clock.seconds[stage])
    minimum = {stage: min(each) for stage, each in seconds.items()}
    total = sum(minimum[stage] for stage in (*STAGES, BETWEEN))

    def line(stage: str, taken: float) -> list[str]:
        return [
            stage,
            f"{clock.calls[stage]:,}" if clock.calls[stage] else "",
            f"{taken * 1e3:,.0f}",
            f"{taken / total:.1%}",
            f"{taken / packets * 1e9:,.0f}",
            f"{taken / max(rows, 1) * 1e9:,.0f}",
        ]

    lines = [line(stage, minimum[stage]) for stage in (*STAGES, BETWEEN)]
    lines += [line("total", total), line(FLOOR, minimum[FLOOR])]
    size = path.stat().st_size / MB
    about = f"{size:,.0f} MB, {packets:,} packets, {rows:,} exchanges; {size / total:,.0f} MB/s."
    header = ["stage", "calls", "CPU ms", "share", "ns/packet", "ns/exchange"]
    return f"{about}\n\n{table(header, lines)}"


def insert(page: str, name: str, result: str) -> str:
    """Insert a table into a page. Raises ValueError if the page has no place for it."""
    mark = f"<!-- where {name} -->\n"
    before, place, remainder = page.partition(mark)
    _, end, after = remainder.partition("<!-- end -->")
    if not (place and end):
        raise ValueError(f"the page has no place for {name}: {mark.strip()} and <!-- end -->")
    return f"{before}{mark}\n{result}\n\n{end}{after}"


def functions(path: Path, count: int) -> None:
    """Print the functions that take the most time."""
    profile = cProfile.Profile(time.process_time)
    profile.runcall(export, path)
    statistics = pstats.Stats(profile)
    statistics.strip_dirs().sort_stats("tottime").print_stats(count)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print CPU times by stage."""
    parser = argparse.ArgumentParser(prog="python -m bench.where", description=main.__doc__)
    parser.add_argument("capture", type=Path)
    parser.add_argument(
        "--functions", type=int, metavar="N", help="print the N slowest functions instead"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="take the minimum of N rounds"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="insert the table into FILE")
    options = parser.parse_args(arguments)
    for places in STAGES.values():
        for place in places:
            locate(place)  # import modules before the clock starts
    if options.functions:
        functions(options.capture, options.functions)
        return
    result = stages(options.capture, options.rounds)
    if options.page:
        options.page.write_text(insert(options.page.read_text(), options.capture.name, result))
    else:
        print(result)


if __name__ == "__main__":
    main()

"""Where the time goes: `python -m bench.where CAPTURE`, one process, stage by stage.

The capture is read as `export --table exchanges --format parquet` reads it. Each function that
begins a stage is wrapped by a clock; a stage's time is its own, without that of the stages that it
calls. All of them are called once a block, or once for each kind of message in it, so that the
clocks cost nothing. They count processor time, and the best of some rounds is taken. The floor is
what it takes to read the file's bytes, and look at none.

With `--page FILE` the table goes into a page, in the place of the one that stands there between the
lines ``<!-- where NAME -->``, NAME being the capture's, and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import importlib
import pstats
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.report import MB, table

STAGES = {
    "packets: read bytes": ("dissector.packets.byte_input:ByteInput.fill",),
    "packets: record headers": ("dissector.packets.pcap:Pcap.scan",),
    "packets: link, IP, TCP": ("dissector.packets.files:segments",),
    "packets: the rest": ("dissector.packets.files:FileSource.read",),
    "streams: connections": ("dissector.streams.flows:FlowTracker.assign",),
    "streams: reassembly": ("dissector.streams.reassembly:Reassembler.feed",),
    "streams: Kafka or not": (
        "dissector.streams.detection:ProtocolDetector.decide",
        "dissector.streams.detection:ProtocolDetector.seek",
    ),
    "streams: frames": ("dissector.streams.frame_chain:FrameChains.walk",),
    "streams: the rest": (
        "dissector.streams.streaming:Streams.feed",
        "dissector.streams.streaming:Streams.finish",
    ),
    "exchanges: headers": (
        "dissector.exchanges.correlator:read_headers",
        "dissector.exchanges.correlator:read_request_headers",
        "dissector.exchanges.correlator:response_bodies",
    ),
    "exchanges: bodies": ("dissector.exchanges.decoded_fields:decode_fields",),
    "exchanges: match": (
        "dissector.exchanges.matching:Matcher.match",
        "dissector.exchanges.matching:in_flight",
    ),
    "exchanges: request table": ("dissector.exchanges.correlator:request_table",),
    "exchanges: the rest": ("dissector.exchanges.correlator:Correlator.feed",),
    "tables: topic names": (
        "dissector.exchanges.topic_names:TopicNames.learn",
        "dissector.tables.finalizer:Finalizer.add",
        "dissector.tables.finalizer:Finalizer.finish",
    ),
    "tables: brokers": ("dissector.tables.connections:Connections.learn",),
    "tables: rows of exchanges": ("dissector.tables.exchanges:exchanges",),
    "tables: Parquet": ("pyarrow.parquet:ParquetWriter.write_table",),
}
"""Where each stage begins: a module, and the function or method that is looked up in it."""
REST = "between the stages"
FLOOR = "floor: the file's bytes, read"
PIECE = 1 << 20


class Clock:
    """Processor seconds by stage; a stage that begins stops the one around it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._running = [REST]
        self._since = time.process_time()

    def lap(self) -> None:
        """Put the time since the last lap down to the stage that runs."""
        now = time.process_time()
        self.seconds[self._running[-1]] += now - self._since
        self._since = now

    def watch(self, stage: str, place: str) -> None:
        """Put the time of the function at `place` down to `stage`."""
        owner, name = located(place)
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            self.lap()
            self._running.append(stage)
            self.calls[stage] += 1
            try:
                return function(*arguments, **named)
            finally:
                self.lap()
                self._running.pop()

        setattr(owner, name, timed)


def located(place: str) -> tuple[Any, str]:
    """What holds the function that `place` names, and its name there."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    return functools.reduce(getattr, owners, importlib.import_module(module)), name


def floor(path: Path) -> float:
    """Processor seconds to read a file's bytes into the same memory over and over."""
    begin, piece = time.process_time(), bytearray(PIECE)
    with path.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass
    return time.process_time() - begin


def export(path: Path) -> tuple[int, int]:
    """Read a capture to `exchanges` in Parquet; how many packets and exchanges it has."""
    import pyarrow as pa

    from analysis.export import FORMATS
    from dissector.packets import open_packets
    from dissector.pipeline import Pipeline
    from dissector.tables import TABLES

    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for _, batch in pipeline.stream(["exchanges"]):
            rows += len(batch)
            yield batch

    pipeline = Pipeline(open_packets([path]))
    FORMATS["parquet"](counted(), TABLES["exchanges"].schema, pa.BufferOutputStream())
    return pipeline.packets, rows


def stages(path: Path, rounds: int) -> str:
    """A table of what each stage took, in the round in which it took the least."""
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
        for stage in (*STAGES, REST):
            seconds[stage].append(clock.seconds[stage])
    least = {stage: min(each) for stage, each in seconds.items()}
    whole = sum(least[stage] for stage in (*STAGES, REST))

    def line(stage: str, taken: float) -> list[str]:
        return [
            stage,
            f"{clock.calls[stage]:,}" if clock.calls[stage] else "",
            f"{taken * 1e3:,.0f}",
            f"{taken / whole:.1%}",
            f"{taken / packets * 1e9:,.0f}",
            f"{taken / max(rows, 1) * 1e9:,.0f}",
        ]

    lines = [line(stage, least[stage]) for stage in (*STAGES, REST)]
    lines += [line("together", whole), line(FLOOR, least[FLOOR])]
    size = path.stat().st_size / MB
    about = (
        f"{size:,.0f} MB, {packets:,} packets, {rows:,} exchanges; {size / whole:,.0f} MB a second."
    )
    header = ["stage", "calls", "CPU ms", "share", "ns a packet", "ns an exchange"]
    return f"{about}\n\n{table(header, lines)}"


def put(page: str, name: str, found: str) -> str:
    """The page with what was found in its place. Raises ValueError where it has none."""
    mark = f"<!-- where {name} -->\n"
    before, place, rest = page.partition(mark)
    _, end, after = rest.partition("<!-- end -->")
    if not (place and end):
        raise ValueError(f"the page has no place for {name}: {mark.strip()} and <!-- end -->")
    return f"{before}{mark}\n{found}\n\n{end}{after}"


def functions(path: Path, count: int) -> None:
    """Print the functions that take the most time, and how many calls there are."""
    profile = cProfile.Profile(time.process_time)
    profile.runcall(export, path)
    statistics = pstats.Stats(profile)
    statistics.strip_dirs().sort_stats("tottime").print_stats(count)


def main(arguments: Sequence[str] | None = None) -> None:
    """Say where the time goes."""
    parser = argparse.ArgumentParser(prog="python -m bench.where", description=main.__doc__)
    parser.add_argument("capture", type=Path)
    parser.add_argument(
        "--functions", type=int, metavar="N", help="the N functions that take the most, instead"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the best of N rounds")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the table into a page")
    options = parser.parse_args(arguments)
    for places in STAGES.values():
        for place in places:
            located(place)  # whatever is heavy is imported before the clock starts
    if options.functions:
        functions(options.capture, options.functions)
        return
    found = stages(options.capture, options.rounds)
    if options.page:
        options.page.write_text(put(options.page.read_text(), options.capture.name, found))
    else:
        print(found)


if __name__ == "__main__":
    main()

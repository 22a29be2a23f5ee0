"""The results as text: Markdown, which reads well on a terminal too.

A ratio is of medians of the same rounds on the same file. A program that ran on a part is compared
by packets a second.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bench.measure import Series
from bench.peers import FLOOR, OURS, OURS_ON_TWO, PEERS, TSHARK
from bench.suite import TABLES, TIMES, Large, Results, sized

MB = 1e6


@dataclass(frozen=True, slots=True)
class Mark:
    """One thing that the project wants to reach."""

    about: str
    mark: float
    reached: float | None
    """None where it was not measured."""
    in_cpu: float | None = None
    """The same, of processor time: for a machine that does other things as well."""
    unit: str = "×"
    at_most: bool = False
    """Else at least."""

    def row(self) -> list[str]:
        """What was wanted, what was reached, and whether that is enough."""
        wanted = f"{'≤' if self.at_most else '≥'} {self.mark:g} {self.unit}"
        if self.reached is None:
            return [self.about, wanted, "not measured"]
        good = self.reached <= self.mark if self.at_most else self.reached >= self.mark
        reached, in_cpu = (
            "" if each is None else f"{each:,.3g} {self.unit}"
            for each in (self.reached, self.in_cpu)
        )
        return [self.about, wanted, reached, "yes" if good else "no", in_cpu]


def text(results: Results) -> str:
    """All results as one page."""
    return "\n\n".join(_parts(results)) + "\n"


def _parts(results: Results) -> Iterator[str]:
    yield "# What was measured"
    yield (
        "Written by `make bench`: whole processes, one after the other in each round, on warm\n"
        "files; medians. Nothing is asserted: another machine has other figures, but much the\n"
        "same ratios."
    )
    yield "\n".join(f"- {line}" for line in machine(results.load))
    if marks := [mark.row() for mark in _marks(results)]:
        yield "## Marks"
        yield table(["mark", "wanted", "reached", "enough", "of CPU time"], marks)
    for load in results.peers:
        yield f"## {load.capitalize()}"
        yield _content(results.inputs[load])
        yield _peers(results, load)
    if results.tables:
        yield "## Each table, and the summary"
        yield "Of chatter, and what it takes over `exchanges`."
        yield _tables(results)
    if results.sizes:
        yield "## Size of the file, number of connections"
        yield "`exchanges`; each input against the first of its kind."
        yield _sizes(results)
    if results.start:
        yield "## Start"
        yield table(
            ["what", "ms", "least to most", "peak MB"],
            [_start(name, series) for name, series in results.start.items()],
        )
    for what, said in results.inside.items():
        yield f"## {what.capitalize()}"
        yield said


def machine(load: float) -> Iterator[str]:
    """What all this ran on, without a name of it."""
    model = ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if (cpus := Path("/proc/cpuinfo")).exists():
        lines = cpus.read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
    yield time.strftime("%Y-%m-%d", time.gmtime())
    yield f"{os.cpu_count()} cores{', ' * bool(model)}{model}; {memory:.0f} GiB of memory"
    yield f"load before: {load:.1f}"
    versions = [f"{name} {metadata.version(name)}" for name in ("numpy", "pyarrow")]
    yield ", ".join([f"Python {platform.python_version()}", *versions])
    yield ", ".join(f"{peer.name} {version}" for peer in PEERS if (version := peer.version()))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its columns aligned, all but the first to the right; rows may be short."""
    filled = [[*row, *[""] * (len(header) - len(row))] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *filled, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return f"| {' | '.join(padded)} |"

    rule = [f"{'-' * widths[0]}", *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, filled)])


def _content(large: Large) -> str:
    return (
        f"{large.bytes / MB:,.0f} MB, {large.packets:,} packets, {large.messages:,} messages, "
        f"{large.connections:,} connections."
    )


def _peers(results: Results, load: str) -> str:
    found = results.peers[load]
    rows = []
    for peer in PEERS:
        series = found[peer.name]
        if series.failure:
            rows.append([f"{peer.name}: {series.failure}"])
            continue
        large = results.inputs[f"{load}-part" if peer.on_part else load]
        rows.append(
            [
                f"{peer.name}: {peer.does}",
                f"{series.wall:.2f}",
                _range(series, 1, 2),
                f"{series.cpu:.2f}",
                f"{series.memory / MB:,.0f}",
                f"{large.packets / series.wall:,.0f}",
                f"{large.messages / series.wall:,.0f}",
                f"{large.bytes / MB / series.wall:,.1f}",
                _ratio(_pace(results, load, peer.name), _pace(results, load, FLOOR)),
                _ratio(_pace(results, load, TSHARK), _pace(results, load, peer.name)),
            ]
        )
    header = [
        "program",
        "s",
        "least to most",
        "CPU s",
        "peak MB",
        "packets/s",
        "messages/s",
        "MB/s",
    ]
    return table([*header, "time ÷ tcpdump's", "speed ÷ tshark's"], rows)


def _pace(results: Results, load: str, program: str) -> float | None:
    """Seconds a packet; None where it did not run."""
    series = results.peers.get(load, {}).get(program)
    if series is None or series.failure:
        return None
    on_part = any(peer.on_part for peer in PEERS if peer.name == program)
    return series.wall / results.inputs[f"{load}-part" if on_part else load].packets


def _tables(results: Results) -> str:
    rows = []
    first = results.tables[TABLES[0]]
    for name, series in results.tables.items():
        if series.failure:
            rows.append([f"{name}: {series.failure}"])
            continue
        against = "" if first.failure else f"{series.wall / first.wall:.2f}"
        memory = f"{series.memory / MB:,.0f}"
        rows.append([name, f"{series.wall:.2f}", _range(series, 1, 2), memory, against])
    return table(["table", "s", "least to most", "peak MB", "time ÷ exchanges'"], rows)


def _sizes(results: Results) -> str:
    rows = []
    for name, series in results.sizes.items():
        large = results.inputs[name]
        cells = [name, f"{large.bytes / MB:,.0f}", f"{large.connections:,}", f"{large.messages:,}"]
        if series.failure:
            rows.append([f"{name}: {series.failure}", *cells[1:]])
            continue
        kind = name.split("-")[0]
        first = next(each for each in results.sizes if each.startswith(kind))
        base, base_series = results.inputs[first], results.sizes[first]
        rows.append(
            [
                *cells,
                f"{series.wall:.2f}",
                f"{series.wall / large.packets * 1e9:,.0f}",
                f"{series.memory / MB:,.0f}",
                f"{large.bytes / base.bytes:.2f}",
                _ratio(series.memory, None if base_series.failure else base_series.memory),
            ]
        )
    header = ["input", "MB", "connections", "messages", "s", "ns a packet", "peak MB"]
    return table([*header, "size ÷ first's", "memory ÷ first's"], rows)


def _start(name: str, series: Series) -> list[str]:
    if series.failure:
        return [f"{name}: {series.failure}"]
    memory = f"{series.memory / MB:,.0f}"
    return [name, f"{series.wall * 1e3:.0f}", _range(series, 1e3, 0), memory]


def _marks(results: Results) -> Iterator[Mark]:
    """The marks that the loads at hand can speak of."""
    for load, wanted in {"bulk": (12, 40), "chatter": (10, 25)}.items():
        if load in results.peers:
            for mark in wanted:
                reached, in_cpu = _against(results, load, TSHARK, OURS)
                yield Mark(f"{load}: as fast as tshark", mark, reached, in_cpu)
    if "bulk" in results.peers:
        reached, in_cpu = _against(results, "bulk", OURS, FLOOR)
        yield Mark("bulk: tcpdump's time", 6, reached, in_cpu, at_most=True)
        for ours, most, how in ((OURS, 2, ""), (OURS_ON_TWO, 1.5, ", on two processors")):
            reached, in_cpu = _beyond_start(results, ours)
            yield Mark(f"bulk: the same, beyond start-up{how}", most, reached, in_cpu, at_most=True)
    for load in results.peers:
        reached, _ = _against(results, load, OURS, OURS_ON_TWO)
        yield Mark(f"{load}: two processors, as fast as one", 1.7, reached)
    for load in TIMES:
        once, twice = (results.sizes.get(sized(load, times)) for times in (1.0, 2.0))
        if once is None or twice is None:
            continue
        good = not once.failure and not twice.failure
        memory = max(once.memory, twice.memory) / MB if good else None
        yield Mark(f"{load}: peak memory", 400, memory, unit="MB", at_most=True)
        growth = twice.memory / once.memory if good else None
        yield Mark(f"{load}: peak memory for twice the file", 1.05, growth, at_most=True)
    asked, exported = (results.tables.get(name) for name in ("sql", "exchanges"))
    if asked and exported:
        good = not asked.failure and not exported.failure
        ratio = asked.wall / exported.wall if good else None
        yield Mark("sql: the time of export", 1.3, ratio, at_most=True)
    if f"{OURS} --help" in results.start:
        series = results.start[f"{OURS} --help"]
        reached = None if series.failure else series.wall * 1e3
        yield Mark("--help", 150, reached, unit="ms", at_most=True)


def _against(
    results: Results, load: str, one: str, other: str
) -> tuple[float | None, float | None]:
    """One's time by the other's; the same of processor time."""
    first, second = (results.peers[load][name] for name in (one, other))
    if first.failure or second.failure:
        return None, None
    return first.wall / second.wall, first.cpu / second.cpu


def _beyond_start(results: Results, name: str) -> tuple[float | None, float | None]:
    """Ours against tcpdump on bulk, from each what it takes for nearly nothing."""
    ours, floor = (results.peers["bulk"][each] for each in (name, FLOOR))
    nothing = Series()
    ours_start = results.start.get(f"{OURS} export", nothing)
    floor_start = results.start.get(f"{FLOOR} -w /dev/null", nothing)
    if any(each.failure or not each.runs for each in (ours, floor, ours_start, floor_start)):
        return None, None
    wall = ours.wall - ours_start.wall, floor.wall - floor_start.wall
    cpu = ours.cpu - ours_start.cpu, floor.cpu - floor_start.cpu
    if min(*wall, *cpu) <= 0:
        return None, None  # too small an input to tell
    return wall[0] / wall[1], cpu[0] / cpu[1]


def _ratio(value: float | None, base: float | None) -> str:
    return "" if value is None or base is None else f"{value / base:,.3g}"


def _range(series: Series, factor: float, digits: int) -> str:
    walls = series.walls
    return f"{walls[0] * factor:.{digits}f} to {walls[-1] * factor:.{digits}f}"

"""The results as Markdown.

Ratios compare medians of the same rounds on the same file. A program that ran on a part is compared
by packets per second.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bench.measure import Series
from bench.peers import FLOOR, OURS, OURS_ON_TWO, PEERS, TSHARK
from bench.suite import FILES, IN_FILES, TABLES, TIMES, Large, Results, sized

MB = 1e6
CELLS = ("s", "range", "CPU s", "peak MB")


@dataclass(frozen=True, slots=True)
class Goal:
    """A performance goal."""

    about: str
    target: float
    reached: float | None
    """None if it was not measured."""
    in_cpu: float | None = None
    """The same for CPU time, which other load affects less."""
    unit: str = "×"
    at_most: bool = False
    """Whether the goal is an upper bound."""

    def row(self) -> list[str]:
        """The goal, the result, and whether the goal was reached."""
        target_text = f"{'≤' if self.at_most else '≥'} {self.target:g} {self.unit}"
        if self.reached is None:
            return [self.about, target_text, "not measured"]
        is_valid = self.reached <= self.target if self.at_most else self.reached >= self.target
        reached, in_cpu = (
            "" if each is None else f"{each:,.3g} {self.unit}"
            for each in (self.reached, self.in_cpu)
        )
        return [self.about, target_text, reached, "yes" if is_valid else "no", in_cpu]


def text(results: Results) -> str:
    """All results as one page."""
    return "\n\n".join(_parts(results)) + "\n"


def _parts(results: Results) -> Iterator[str]:
    yield "# Benchmark results"
    yield (
        "Written by `make bench`: medians of whole processes, run in turn on cached files.\n"
        "Other machines have other figures, but similar ratios."
    )
    yield "\n".join(f"- {line}" for line in machine(results.load))
    if goals := [target.row() for target in _goals(results)]:
        yield "## Goals"
        yield table(["goal", "target", "result", "reached", "CPU time"], goals)
    for load in results.peers:
        yield f"## {load.capitalize()}"
        yield _content(results.inputs[load])
        yield _peers(results, load)
    if results.tables:
        yield "## Tables and summary"
        yield "Input: chatter."
        yield _against_first(results.tables, "table", TABLES[0])
    for source, answers in results.answers.items():
        yield f"## Answers from {source}"
        yield _content(results.inputs[sized("chatter", TIMES["chatter"][-1])])
        yield _against_first(answers, "answer", "latency")
    if results.sizes:
        yield "## File size and number of connections"
        yield "Table `exchanges`. Ratios compare with the first input of a kind."
        yield _sizes(results)
    if results.start:
        yield "## Start-up"
        yield table(
            ["program", "ms", "range", "peak MB"],
            [_start(name, series) for name, series in results.start.items()],
        )
    for name, section in results.inside.items():
        yield f"## {name.capitalize()}"
        yield section


def machine(load: float) -> Iterator[str]:
    """The hardware and software versions, without host names."""
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
    """A Markdown table with aligned columns, all but the first to the right; rows may be short."""
    filled = [[*row, *[""] * (len(header) - len(row))] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *filled, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *remaining = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in remaining)]
        return f"| {' | '.join(padded)} |"

    rule = [f"{'-' * widths[0]}", *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, filled)])


def _content(large: Large) -> str:
    return (
        f"{large.bytes / MB:,.0f} MB, {large.packets:,} packets, {large.messages:,} messages, "
        f"{large.connections:,} connections."
    )


def _peers(results: Results, load: str) -> str:
    series_by_peer = results.peers[load]
    rows = []
    for peer in PEERS:
        series = series_by_peer[peer.name]
        if series.failure:
            rows.append([f"{peer.name}: {series.failure}"])
            continue
        large = results.inputs[f"{load}-part" if peer.on_part else load]
        rows.append(
            [
                f"{peer.name}: {peer.does}",
                *_cells(series),
                f"{large.packets / series.wall:,.0f}",
                f"{large.messages / series.wall:,.0f}",
                f"{large.bytes / MB / series.wall:,.1f}",
                _ratio(_pace(results, load, peer.name), _pace(results, load, FLOOR)),
                _ratio(_pace(results, load, TSHARK), _pace(results, load, peer.name)),
            ]
        )
    header = ["program", *CELLS, "packets/s", "messages/s", "MB/s"]
    return table([*header, "time ÷ tcpdump", "speed ÷ tshark"], rows)


def _cells(series: Series) -> list[str]:
    """The cells of `CELLS`."""
    memory = f"{series.memory / MB:,.0f}"
    return [f"{series.wall:.2f}", _range(series, 1, 2), f"{series.cpu:.2f}", memory]


def _pace(results: Results, load: str, program: str) -> float | None:
    """Seconds per packet; None if the program did not run."""
    series = results.peers.get(load, {}).get(program)
    if series is None or series.failure:
        return None
    on_part = any(peer.on_part for peer in PEERS if peer.name == program)
    return series.wall / results.inputs[f"{load}-part" if on_part else load].packets


def _against_first(runs: Mapping[str, Series], kind: str, first: str) -> str:
    """Time and memory of each of a kind; `first` is the one to compare with."""
    rows = []
    base = runs[first]
    for name, series in runs.items():
        if series.failure:
            rows.append([f"{name}: {series.failure}"])
            continue
        ratios = ["" if ratio is None else f"{ratio:.2f}" for ratio in _ratios(series, base)]
        rows.append([name, *_cells(series), *ratios])
    return table([kind, *CELLS, f"time ÷ {first}", f"CPU ÷ {first}"], rows)


def _sizes(results: Results) -> str:
    rows = []
    for name, series in results.sizes.items():
        large = results.inputs[name]
        cells = [name, f"{large.bytes / MB:,.0f}", f"{large.connections:,}", f"{large.messages:,}"]
        if series.failure:
            rows.append([f"{name}: {series.failure}", *cells[1:]])
            continue
        kind = name.split("-")[0]
        first = next(size for size in results.sizes if size.startswith(kind))
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
    header = ["input", "MB", "connections", "messages", "s", "ns per packet", "peak MB"]
    return table([*header, "size ÷ first", "memory ÷ first"], rows)


def _start(name: str, series: Series) -> list[str]:
    if series.failure:
        return [f"{name}: {series.failure}"]
    memory = f"{series.memory / MB:,.0f}"
    return [name, f"{series.wall * 1e3:.0f}", _range(series, 1e3, 0), memory]


def _goals(results: Results) -> Iterator[Goal]:
    """The goals for the measured loads."""
    for load, goal in {"bulk": 22, "chatter": 25, "random": 20}.items():
        if load in results.peers:
            yield Goal(f"{load}: speed ÷ tshark", goal, *_against(results, load, TSHARK, OURS))
    if "bulk" in results.peers:
        ratios = _against(results, "bulk", OURS, FLOOR)
        yield Goal("bulk: time ÷ tcpdump", 6, *ratios, at_most=True)
        for ours, limit, suffix in ((OURS, 2, ""), (OURS_ON_TWO, 1.5, ", on two processors")):
            about = f"bulk: time ÷ tcpdump, without start-up{suffix}"
            yield Goal(about, limit, *_beyond_start(results, ours), at_most=True)
    for load in results.peers:
        reached, _ = _against(results, load, OURS, OURS_ON_TWO)
        yield Goal(f"{load}: speed on two processors ÷ one", 1.7, reached)
    for load in TIMES:
        single, double = (results.sizes.get(sized(load, times)) for times in (1.0, 2.0))
        if single is None or double is None:
            continue
        is_valid = not _failed(single, double)
        memory = max(single.memory, double.memory) / MB if is_valid else None
        yield Goal(f"{load}: peak memory", 300, memory, unit="MB", at_most=True)
        growth = double.memory / single.memory if is_valid else None
        yield Goal(f"{load}: peak memory, double size ÷ single", 1.05, growth, at_most=True)
    files, one = (results.sizes.get(name) for name in (IN_FILES, "chatter"))
    if files and one:
        goal = f"chatter in {FILES:,} files: time ÷ one file"
        yield Goal(goal, 1.5, *_ratios(files, one), at_most=True)
    for source, answers in results.answers.items():
        runs, latency = answers.values(), answers["latency"]
        memory = slowest = in_cpu = None
        if not _failed(*runs):
            memory = max(series.memory for series in runs) / MB
            slowest = max(series.wall for series in runs) / latency.wall
            in_cpu = max(series.cpu for series in runs) / latency.cpu
        yield Goal(f"answers from {source}: memory", 2000, memory, unit="MB", at_most=True)
        yield Goal(f"answers from {source}: slowest ÷ latency", 2, slowest, in_cpu, at_most=True)
    sql, export = (results.tables.get(name) for name in ("sql", "exchanges"))
    if sql and export:
        yield Goal("sql: time ÷ export", 1.3, _ratios(sql, export)[0], at_most=True)
    for command, limit in {"--help": 150, "export": 220}.items():
        if series := results.start.get(f"{OURS} {command}"):
            reached = None if series.failure else series.wall * 1e3
            yield Goal(f"start-up: {command}", limit, reached, unit="ms", at_most=True)


def _against(
    results: Results, load: str, left: str, right: str
) -> tuple[float | None, float | None]:
    """Ratio of wall times and of CPU times of two programs."""
    return _ratios(results.peers[load][left], results.peers[load][right])


def _ratios(first: Series, second: Series) -> tuple[float | None, float | None]:
    """Ratio of wall times and of CPU times; None if a run failed."""
    if _failed(first, second):
        return None, None
    return first.wall / second.wall, first.cpu / second.cpu


def _failed(*runs: Series) -> bool:
    return any(series.failure for series in runs)


def _beyond_start(results: Results, name: str) -> tuple[float | None, float | None]:
    """Time ÷ tcpdump on bulk, without the start-up times of both."""
    ours, floor = (results.peers["bulk"][program] for program in (name, FLOOR))
    empty = Series()
    ours_start = results.start.get(f"{OURS} export", empty)
    floor_start = results.start.get(f"{FLOOR} -w /dev/null", empty)
    if _failed(ours, floor, ours_start, floor_start) or not (ours_start.runs and floor_start.runs):
        return None, None
    wall = ours.wall - ours_start.wall, floor.wall - floor_start.wall
    cpu = ours.cpu - ours_start.cpu, floor.cpu - floor_start.cpu
    if min(*wall, *cpu) <= 0:
        return None, None  # the input is too small
    return wall[0] / wall[1], cpu[0] / cpu[1]


def _ratio(value: float | None, base: float | None) -> str:
    return "" if value is None or base is None else f"{value / base:,.3g}"


def _range(series: Series, factor: float, digits: int) -> str:
    walls = series.walls
    return f"{walls[0] * factor:.{digits}f} to {walls[-1] * factor:.{digits}f}"

"""Runs give the rows of one process, wherever a capture is cut."""

from __future__ import annotations

import gzip
import random
import struct
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from dissector.frame_reader import Broker, FrameReader
from dissector.packets import open_packets
from dissector.packets.block import PacketBlock
from dissector.packets.files import AFTER_ALL, BEFORE_ALL
from dissector.packets.formats.file_ranges import boundary
from dissector.pipeline import Pipeline
from dissector.runs import Plan, planning, worker
from dissector.runs.plan import Run
from dissector.runs.processes import Workers
from dissector.runs.rows import RowFile
from dissector.tables import TABLES
from dissector.tables.arrow import with_dictionaries
from dissector.tables.builder import TableBuilder
from tests.captures import recorded
from tests.captures.recorded import Packet
from tests.dissector.packets.packet_bytes import ng_block, ng_enhanced, ng_interface, ng_section
from tests.dissector.runs.cutting import (
    MEMORY,
    cut,
    differences,
    in_this_process,
    joined,
    plain,
    tables,
)

CHATTER = recorded.CAPTURES / "chatter-mock.pcap.zst"
BULK = recorded.CAPTURES / "bulk-tansu.pcap.zst"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes."""
    monkeypatch.setattr(Workers, "map", in_this_process)


@pytest.fixture(scope="module")
def chatter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of `CHATTER` that is not compressed."""
    return plain(CHATTER, tmp_path_factory.mktemp("chatter"))


@pytest.fixture(scope="module")
def whole(chatter: Path) -> dict[str, pa.Table]:
    """Its tables, of one process."""
    return tables([chatter])


@pytest.mark.sampled(12)
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("path", recorded.SMALLER, ids=lambda path: path.name)
@pytest.mark.parametrize("count", [2, 7])
def test_each_recording(path: Path, count: int, tmp_path: Path) -> None:
    generator = random.Random(path.name)
    capture = plain(path, tmp_path)
    parts = cut([capture], count, generator)
    warm_up = generator.choice([0, capture.stat().st_size // count, 1 << 30])
    actual, _ = joined([capture], parts, warm_up=warm_up)
    assert not differences(tables([capture]), actual), warm_up


@pytest.mark.sampled(8)
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("path", recorded.SMALLER[1:], ids=lambda path: path.name)
def test_states_that_are_learned_in_the_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs without bytes before them: all connections go on in the run, or are dissected again."""
    generator = random.Random(path.name)
    monkeypatch.setattr(worker, "LEAST_PACKETS", generator.choice([1, 5, 50]))
    monkeypatch.setattr(worker, "FIRST_PART", generator.choice([2, 4, 20]))
    capture = plain(path, tmp_path)
    actual, _ = joined([capture], cut([capture], 5, generator), warm_up=0)
    assert not differences(tables([capture]), actual)


@pytest.mark.usefixtures("alone")
def test_an_idle_connection_goes_on(
    chatter: Path, whole: dict[str, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its first packets in the run are dissected by the parent."""
    parts = cut([chatter], 4, random.Random(7))
    actual, kept = joined([chatter], parts, warm_up=0)
    assert not differences(whole, actual)
    assert kept.continued == 0
    monkeypatch.setattr(worker, "LEAST_PACKETS", 1)
    actual, learned = joined([chatter], parts, warm_up=0)
    assert not differences(whole, actual)
    assert learned.continued
    assert learned.reread == 0


@pytest.mark.usefixtures("alone")
def test_states_are_learned_with_the_brokers_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process starts before the parent knows a broker. Without one, learning takes 10 times as
    long: each stream is searched for messages of both sides."""
    monkeypatch.setattr(worker, "LEAST_PACKETS", 1)
    known: list[tuple[set[Broker], set[Broker]]] = []
    move, learn = worker.Learner.move, worker._learn

    def observed(self: worker.Learner) -> object:
        def before(block: PacketBlock, learner: FrameReader, rows: TableBuilder) -> None:
            known.append((set(learner.streams.brokers), set(self._reader.streams.brokers)))
            learn(block, learner, rows)

        with monkeypatch.context() as patch:
            patch.setattr(worker, "_learn", before)
            return move(self)

    monkeypatch.setattr(worker.Learner, "move", observed)
    capture = plain(CHATTER, tmp_path)
    plan = Plan(cut([capture], 3, random.Random(7)), 20_000, 2, 1 << 20, (MEMORY, MEMORY))
    make = partial(Pipeline(open_packets([capture]), []).stages.of_run, ["exchanges"], [""])
    with (tmp_path / "rows").open("wb") as file:
        plan.dissect(1, make, [str(capture)], RowFile(file))
    assert any(run for _, run in known)
    assert all(run <= learner for learner, run in known)


@pytest.mark.usefixtures("alone")
def test_a_client_that_is_known_behind_the_border(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a SYN, the parent does not know the client before the border; the run learns it."""
    monkeypatch.setattr(worker, "LEAST_PACKETS", 1)
    capture = plain(recorded.CAPTURES / "kafka-4-cut-list-topics.pcap.zst", tmp_path)
    expected = tables([capture])
    for seed in range(5):
        actual, _ = joined([capture], cut([capture], 2, random.Random(seed)), warm_up=0)
        assert not differences(expected, actual), seed


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("seed", range(3))
def test_ports_that_are_used_again_before_a_run(tmp_path: Path, seed: int) -> None:
    """All connections are repeated, and the bytes before the run have both of each port."""
    packets = recorded.read("kafka-4-kafkajs.pcap.zst")
    packets += [replace(each, time=each.time + 60 * 10**9) for each in packets]
    capture = recorded.write(tmp_path / "again.pcap", packets)
    parts = cut([capture], 6, random.Random(seed))
    actual, counts = joined([capture], parts, warm_up=1 << 30)
    assert not differences(tables([capture]), actual)
    assert counts.continued


@pytest.mark.usefixtures("alone")
def test_the_bytes_before_a_run_last_less_than_a_millisecond(tmp_path: Path) -> None:
    """Streams without SYN begin at once, so that connections go on even at a high rate."""
    packets = recorded.read(CHATTER.name)
    fast = [replace(each, time=recorded.BEGINNING + 100 * n) for n, each in enumerate(packets)]
    capture = recorded.write(tmp_path / "fast.pcap", fast)
    parts = cut([capture], 2, random.Random(7))
    actual, counts = joined([capture], parts, warm_up=200_000)
    assert not differences(tables([capture]), actual)
    assert counts.continued > counts.repeated


@pytest.mark.usefixtures("alone")
def test_dictionaries(chatter: Path, whole: dict[str, pa.Table]) -> None:
    """Texts of `exchanges` are dictionaries, as in one process."""
    source = open_packets([chatter])
    parts = cut([chatter], 4, random.Random(7))
    plan = Plan(parts, 200_000, 2, source.block_bytes, (MEMORY // 4, MEMORY // 8))
    rows = Pipeline(source, [], plan=plan).stream(["exchanges"], dictionaries=True)
    batches = [batch for _, batch in rows if len(batch)]
    (schema,) = {batch.schema for batch in batches}
    assert schema == with_dictionaries(TABLES["exchanges"].schema)
    actual = {"exchanges": pa.Table.from_batches(batches).cast(TABLES["exchanges"].schema)}
    assert not differences({"exchanges": whole["exchanges"]}, actual)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("path", [BULK, CHATTER], ids=lambda path: path.name)
def test_fifty_runs(path: Path, tmp_path: Path) -> None:
    capture = plain(path, tmp_path)
    parts = cut([capture], 50, random.Random(1))
    actual, counts = joined([capture], parts, warm_up=200_000)
    assert not differences(tables([capture]), actual)
    assert counts.continued > counts.repeated


def lost(packets: list[Packet], generator: random.Random) -> list[Packet]:
    return [each for each in packets if generator.random() > 0.01]


def repeated(packets: list[Packet], generator: random.Random) -> list[Packet]:
    return [each for each in packets for _ in range(1 + (generator.random() < 0.02))]


def reordered(packets: list[Packet], generator: random.Random) -> list[Packet]:
    order = sorted(range(len(packets)), key=lambda index: index + 3 * generator.random())
    return [packets[index] for index in order]


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("change", [lost, repeated, reordered])
@pytest.mark.parametrize("name", ["kafka-4-kafkajs.pcap.zst", "kafka-4-admin.pcap.zst"])
def test_a_lossy_capture(change: object, name: str, tmp_path: Path) -> None:
    generator = random.Random(name)
    assert callable(change)
    packets = change(recorded.read(name), generator)
    path = recorded.write(tmp_path / "one.pcap", packets)
    actual, _ = joined([path], cut([path], 5, generator), warm_up=50_000)
    assert not differences(tables([path]), actual)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_file(seed: int, tmp_path: Path) -> None:
    """The chain of packets breaks in several runs, and at their borders.

    Damaged times end all waits at the end of a block. So the blocks must be the same ones.
    """
    generator = random.Random(seed)
    path = plain(recorded.CAPTURES / "kafka-4-admin.pcap.zst", tmp_path)
    content = bytearray(path.read_bytes())
    for _ in range(30):
        content[generator.randrange(24, len(content))] ^= 1 << generator.randrange(8)
    path.write_bytes(content)
    parts = cut([path], 9, generator)
    expected, counts = joined([path], parts, warm_up=50_000, limits=(-1, -1))
    assert counts.whole == counts.runs
    actual, counts = joined([path], parts, warm_up=50_000)
    assert counts.whole < counts.runs
    assert not differences(expected, actual)


@pytest.mark.usefixtures("alone")
def test_a_wrong_time_ends_no_wait(tmp_path: Path) -> None:
    """A packet of the next day, in the middle of a block, whose other packets have right times."""
    packets = recorded.read(CHATTER.name)
    wrong = len(packets) * 7 // 10
    packets[wrong] = replace(packets[wrong], time=packets[wrong].time + 86_400 * 10**9)
    path = recorded.write(tmp_path / "one.pcap", packets)
    source = open_packets([path], block_bytes=1 << 16)
    parts = cut([path], 3, random.Random(4))
    plan = Plan(parts, 50_000, 2, source.block_bytes, (MEMORY // 4, MEMORY // 8))
    actual = Pipeline(source, [], plan=plan).tables([*TABLES])
    assert not differences(tables([path]), actual)


@pytest.mark.usefixtures("alone")
def test_a_border_that_is_no_packet(chatter: Path, whole: dict[str, pa.Table]) -> None:
    """The parent reads the run behind a wrong border, from the end of the last packet."""
    parts = cut([chatter], 2, random.Random(3))
    border = parts[0].end + 7
    wrong = [
        Run(0, 0, border, False),
        Run(0, border, parts[1].end, True, True),
    ]
    actual, counts = joined([chatter], wrong, warm_up=100_000)
    assert counts.whole == 1
    assert not differences(whole, actual)


@pytest.mark.usefixtures("alone")
def test_files_one_after_the_other(tmp_path: Path) -> None:
    packets = recorded.read("kafka-4-kafkajs.pcap.zst")
    third = len(packets) // 3
    paths = [
        recorded.write(tmp_path / f"{part}.pcap", packets[part * third : (part + 1) * third])
        for part in range(3)
    ]
    actual, _ = joined(paths, cut(paths, 3, random.Random(4)), warm_up=20_000)
    assert not differences(tables(paths), actual)


@pytest.mark.usefixtures("alone")
def test_memory_that_is_used_up(chatter: Path, whole: dict[str, pa.Table]) -> None:
    """What waits in two processes together may exceed the limit: one process reads the run."""
    parts = cut([chatter], 4, random.Random(5))
    actual, counts = joined([chatter], parts, warm_up=100_000, limits=(-1, -1))
    assert counts.whole == counts.runs
    assert not differences(whole, actual)


@pytest.mark.parametrize("jobs", [2, 5])
def test_processes(jobs: int, chatter: Path, whole: dict[str, pa.Table]) -> None:
    names = ["exchanges", "connections", "problems"]
    parts = cut([chatter], 8, random.Random(6))
    actual, counts = joined([chatter], parts, warm_up=100_000, jobs=jobs, names=names)
    assert counts.continued
    assert not differences({name: whole[name] for name in names}, actual)


@pytest.mark.usefixtures("alone")
def test_a_capture_without_connections(tmp_path: Path) -> None:
    """Its packets are of an unsupported link type: it has nothing but problems."""
    path = recorded.write(tmp_path / "one.pcap", recorded.read(CHATTER.name)[:500])
    content = bytearray(path.read_bytes())
    content[20] = 147
    path.write_bytes(content)
    actual, counts = joined([path], cut([path], 3, random.Random(1)), warm_up=10_000)
    assert (counts.runs, counts.whole) == (2, 0)
    assert {*actual["problems"]["kind"].to_pylist()} == {"unknown_link"}
    assert sum(actual["problems"]["count"].to_pylist()) == 500  # in a row for each block


def test_the_plan_covers_all_bytes(tmp_path: Path) -> None:
    path = plain(CHATTER, tmp_path)
    size = path.stat().st_size
    parts = planning.plan(open_packets([path]), size // 5)
    assert parts
    assert len(parts) == 5
    assert [each.begin for each in parts] == [0, *(each.end for each in parts[:-1])]
    assert parts[-1].end == size
    assert [each.is_last for each in parts] == [False, False, False, False, True]


def in_files(folder: Path, *, of_two_points: bool) -> list[Path]:
    """A recording in six compressed files: one after the other, or of two capture points."""
    packets = recorded.read("kafka-4-kafkajs.pcap.zst")
    count = len(packets) // 6 + 1
    parts = [packets[at : at + count] for at in range(0, len(packets), count)]
    if of_two_points:
        size = 2 * count
        both = [packets[at : at + size] for at in range(0, len(packets), size)]
        parts = [pair[side::2] for pair in both for side in range(2)]
    paths = []
    for number, part in enumerate(parts):
        name = f"point{'ab'[number % 2] if of_two_points else ''}-{number}.pcap"
        path = recorded.write(folder / name, part)
        paths.append(path.with_suffix(".pcap.gz"))
        paths[-1].write_bytes(gzip.compress(path.read_bytes(), 1))
    return paths


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("of_two_points", [False, True])
def test_compressed_files(
    tmp_path: Path, of_two_points: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are ranges of time: a file may be in two of them."""
    monkeypatch.setattr(planning, "MARGIN", 10**6)  # the recording takes seconds
    monkeypatch.setattr(planning, "MOST_REPEATED", 10)  # and has few files
    paths = in_files(tmp_path, of_two_points=of_two_points)
    source = open_packets(paths)
    parts = planning.plan(source, 2 * min(source.sizes))
    assert parts
    assert len(parts) > 1
    actual, counts = joined(paths, [*parts], warm_up=100_000)
    assert counts.whole == 0
    assert counts.continued
    assert not differences(tables(paths), actual)


@pytest.mark.usefixtures("alone")
def test_a_file_that_reaches_further_than_assumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent reads the run with the packets of the file."""
    monkeypatch.setattr(planning, "MOST_REPEATED", 10)
    paths = in_files(tmp_path, of_two_points=True)
    parts = planning.plan(open_packets(paths), 1)
    assert parts
    assert isinstance(parts[1], planning.TimeRun)
    short = [replace(each, files=each.files[-1:]) for each in parts]
    actual, counts = joined(paths, [parts[0], *short[1:]], warm_up=0)
    assert counts.whole
    assert not differences(tables(paths), actual)


@pytest.mark.usefixtures("alone")
def test_damage_in_a_file_of_two_runs(tmp_path: Path) -> None:
    """Each problem is in one run."""
    paths = [path.with_suffix("") for path in in_files(tmp_path, of_two_points=True)]
    for path in paths:
        content = bytearray(path.read_bytes())
        content[len(content) // 2 : len(content) // 2 + 90] = bytes(90)
        path.write_bytes(content[:-5])
    cuts = [start for _, start in open_packets(paths).sequence or ()][2::2]
    files = tuple((start, index) for index, start in open_packets(paths).sequence or ())
    shifted = [each + 10**6 for each in cuts]  # inside of files
    bounds = pairwise([BEFORE_ALL, *shifted, AFTER_ALL])
    parts = [
        planning.TimeRun(files, *each, 1, number == len(cuts)) for number, each in enumerate(bounds)
    ]
    actual, _ = joined(paths, parts, warm_up=0)
    assert not differences(tables(paths), actual)


@pytest.mark.usefixtures("alone")
def test_files_that_begin_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A range of time begins with a file that is in it, however small the runs are."""
    monkeypatch.setattr(planning, "MOST_REPEATED", 10)
    packets = recorded.read("kafka-4-kafkajs.pcap.zst")
    third = len(packets) // 3
    first = packets[:third]
    parts = (first[::2], [first[0], *first[1::2]], packets[third:])
    paths = [recorded.write(tmp_path / f"{n}.pcap", part) for n, part in enumerate(parts)]
    runs = planning.plan(open_packets(paths), 1)
    assert runs
    assert len(runs) == 2
    actual, _ = joined(paths, [*runs], warm_up=0)
    assert not differences(tables(paths), actual)


def test_files_without_a_plan(tmp_path: Path) -> None:
    packets = recorded.read("kafka-4-kafkajs.pcap.zst")
    both = [recorded.write(tmp_path / f"{part}.pcap", packets[part::2]) for part in range(2)]
    plan = planning.plan(open_packets(both), 1 << 20)
    assert plan is not None
    assert len(plan) == 1  # they overlap in time, and begin together
    compressed = planning.plan(open_packets([CHATTER]), 1)
    assert compressed is not None
    assert len(compressed) == 1
    secrets = recorded.CAPTURES / "kafka-4-tls-secrets.pcapng.zst"
    with_secrets = plain(secrets, tmp_path)
    assert planning.plan(open_packets([with_secrets]), 1 << 20) is None


def test_secrets_behind_the_head_of_a_file(tmp_path: Path) -> None:
    """Packets of another kind before the secrets let the file be planned."""
    data = plain(recorded.CAPTURES / "kafka-4-tls-secrets.pcapng.zst", tmp_path).read_bytes()
    blocks, at = [], 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        blocks.append((kind, data[at : at + size]))
        at += size
    head = [block for kind, block in blocks if kind in (0x0A0D0D0A, 1)]
    others = sorted((block for block in blocks if block[1] not in head), key=lambda each: -each[0])
    first = next(block for kind, block in others if kind == 6)
    filler = struct.pack("<3I", 6, 132, 0) + first[12:20] + struct.pack("<2I", 100, 100)
    filler += bytes(100) + struct.pack("<I", 132)
    content = b"".join([*head, filler * 1000, *(block for _, block in others)])
    path = tmp_path / "late.pcapng"
    path.write_bytes(content)
    assert planning.plan(open_packets([path]), 1 << 20)
    border = boundary(str(path), 100_000)
    assert border
    ranges = (0, border), (border, len(content))
    parts = [Run(0, *each, each[0] > 0, each[0] > 0) for each in ranges]
    actual, counts = joined([path], parts, warm_up=0)
    assert counts.whole == 1  # only the parent has the secrets of all runs
    assert not differences(tables([path]), actual)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("seed", range(4))
def test_packets_that_the_capture_dropped(tmp_path: Path, seed: int) -> None:
    """Later counts contain earlier ones, of runs before."""
    generator = random.Random(seed)
    content, total = ng_section() + ng_interface(), 0
    for packet in recorded.read(CHATTER.name)[:3000]:
        dropped = generator.choice([0, 0, 7]) if generator.random() < 0.006 else None
        content += ng_enhanced(packet.frame, packet.time // 1000)
        if dropped is not None:
            total += dropped
            count = struct.pack("<3IHHQ", 0, 0, 0, 5, 8, total)  # isb_ifdrop
            content += ng_block(5, count)
    path = tmp_path / "drops.pcapng"
    path.write_bytes(content)
    expected = tables([path])
    rows = expected["problems"].to_pylist()
    counts = [row["count"] for row in rows if row["kind"] == "dropped_packets"]
    assert len(counts) > 1
    assert sum(counts) == total
    actual, joiner_counts = joined([path], cut([path], 5, generator), warm_up=1 << 16)
    assert joiner_counts.runs > 1
    assert not differences(expected, actual)

"""Many files as one capture: their selection, the order of their packets, and errors."""

import bz2
import gzip
import io
import lzma
import os
import random
import re
import shutil
import struct
import subprocess
import tarfile
import threading

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dissector.capture import open_capture
from dissector.errors import CaptureError
from dissector.packets import PacketSource, open_packets
from tests.dissector.packets.packet_bytes import (
    frame,
    ng_block,
    ng_enhanced,
    ng_interface,
    ng_section,
    pcap,
    read,
    rows_of,
)

ANY_FOLDER = [HealthCheck.function_scoped_fixture]
START = 1_700_000_000 * 10**9


def packets(first: int, last: int) -> list[bytes]:
    return [frame(b"payload %d" % i, seq=i) for i in range(first, last)]


def seqs(reading) -> list[int]:
    return [row.seq for row in reading.rows]


def test_rotated_files_come_in_order_of_time_not_of_name(tmp_path):
    (tmp_path / "a").write_bytes(pcap(packets(20, 30), start=20))
    (tmp_path / "b").write_bytes(pcap(packets(0, 10), start=0))
    (tmp_path / "c").write_bytes(pcap(packets(10, 20), start=10))
    reading = read(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert seqs(reading) == list(range(30))
    assert reading.names == [str(tmp_path / name) for name in "abc"]
    assert [row.capture for row in reading.rows] == [1] * 10 + [2] * 10 + [0] * 10
    assert [row.number for row in reading.rows] == list(range(1, 11)) * 3
    assert reading.bytes_read == sum(path.stat().st_size for path in tmp_path.iterdir())


@settings(max_examples=40, suppress_health_check=ANY_FOLDER)
@given(
    owners=st.lists(st.integers(0, 4), min_size=1, max_size=120),
    block_bytes=st.integers(64, 4000),
    reserve=st.integers(0, 100),
)
def test_packets_split_over_files_come_back_in_order(tmp_path, owners, block_bytes, reserve):
    paths = []
    for owner in sorted(set(owners)):
        content = ng_section() + ng_interface()
        for i, other in enumerate(owners):
            if other == owner:
                content += ng_enhanced(frame(b"%d" % i, seq=i), 1000 + i)
        paths.append(tmp_path / f"{owner}")
        paths[-1].write_bytes(content)
    reading = read(*paths, block_bytes=block_bytes, reserve=reserve)
    assert seqs(reading) == list(range(len(owners)))
    assert reading.payloads == [b"%d" % i for i in range(len(owners))]
    assert reading.packets_seen == len(owners)
    assert reading.bytes_read == sum(path.stat().st_size for path in paths)


def test_large_files_that_overlap(tmp_path):
    """Files of several blocks, even of the smallest size."""
    owners = random.Random(1).choices(range(3), k=3000)
    payload = bytes(200)
    for owner in range(3):
        content = ng_section() + ng_interface()
        for i, other in enumerate(owners):
            if other == owner:
                content += ng_enhanced(frame(payload, seq=i), 1000 + i)
        (tmp_path / f"{owner}").write_bytes(content)
    reading = read(tmp_path, block_bytes=100_000)
    assert seqs(reading) == list(range(3000))
    assert reading.blocks > 5


def test_packets_of_one_file_keep_their_order_though_times_do_not_ascend(tmp_path):
    content = ng_section() + ng_interface()
    times = [10, 30, 20, 25, 40]
    for i, time in enumerate(times):
        content += ng_enhanced(frame(seq=i), time)
    (tmp_path / "a").write_bytes(content)
    other = ng_section() + ng_interface() + ng_enhanced(frame(seq=90), 26)
    (tmp_path / "b").write_bytes(other + ng_enhanced(frame(seq=91), 35))
    reading = read(tmp_path)
    assert seqs(reading) == [0, 90, 1, 2, 3, 91, 4]
    assert [row.time for row in reading.rows if row.seq < 90] == [t * 1000 for t in times]


HOUR = 3600 * 10**6


def order_of_two_files(tmp_path, times, block_bytes):
    """Numbers of the packets in the order in which they are read: 0, 1, ... at these times in one
    file; 90, 91 and 92 at 15, 25 and 35 in another one. µs."""
    for name, first, each in (("a", 0, times), ("b", 90, [15, 25, 35])):
        content = ng_section() + ng_interface()
        for seq, time in enumerate(each, first):
            content += ng_enhanced(frame(seq=seq), 2 * HOUR + time)
        (tmp_path / name).write_bytes(content)
    reading = read(tmp_path, block_bytes=block_bytes)
    assert [row.time for row in reading.rows if row.seq < 90] == [
        (2 * HOUR + time) * 1000 for time in times
    ]
    return seqs(reading)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([10, 20 + HOUR, 30], [0, 1, 90, 91, 2, 92]),
        ([10 + HOUR, 20, 30], [90, 91, 0, 1, 2, 92]),
        ([10, 20 - HOUR, 30], [0, 1, 90, 91, 2, 92]),
        ([10, 20, 30 + HOUR], [0, 90, 1, 2, 91, 92]),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_a_wrong_time_does_not_delay_the_packets_after_it(tmp_path, times, expected, block_bytes):
    """It counts like the time before it."""
    assert order_of_two_files(tmp_path, times, block_bytes) == expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([10, 20 + HOUR, 30 + HOUR, 40 + HOUR], [0, 90, 91, 92, 1, 2, 3]),
        ([10 - HOUR, 20, 30], [0, 90, 1, 91, 2, 92]),
    ],
)
def test_packets_after_a_pause_of_an_hour_are_in_order(tmp_path, times, expected):
    assert order_of_two_files(tmp_path, times, 1 << 20) == expected


def test_packets_of_one_time_come_in_order_of_files(tmp_path):
    for name in "abc":
        (tmp_path / name).write_bytes(pcap([frame(name.encode())] * 3, step=0))
    reading = read(tmp_path)
    assert reading.payloads == [b"a"] * 3 + [b"b"] * 3 + [b"c"] * 3


def test_small_files_share_a_block(tmp_path):
    """Also if damaged, empty, overlapping and unreadable files are between them."""
    for number in range(30):
        content = pcap(packets(number * 10, number * 10 + 10), start=number * 10)
        (tmp_path / f"{number:02}").write_bytes(content)
    (tmp_path / "09").write_bytes(pcap([]))
    (tmp_path / "10").write_bytes(b"")
    (tmp_path / "11").write_bytes((tmp_path / "11").read_bytes()[:-5])
    (tmp_path / "12").write_bytes(gzip.compress((tmp_path / "12").read_bytes()))
    (tmp_path / "13").write_bytes(pcap(packets(125, 150), start=125))
    (tmp_path / "29").write_bytes(pcap([]))
    paths = sorted(tmp_path.iterdir())
    together = read(*paths)
    apart = read(*paths, block_bytes=64)
    assert together.blocks == 1
    assert apart.blocks > 30
    assert seqs(together) == seqs(apart)
    assert together.rows == apart.rows
    assert together.payloads == apart.payloads
    assert together.bytes_read == apart.bytes_read
    assert sorted(map(repr, together.problems)) == sorted(map(repr, apart.problems))
    assert {problem.kind for problem in together.problems} == {"truncated_file", "unreadable_file"}


@given(
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), max_size=3),
    st.integers(0, 3000),
)
@example(30, [(350, 2), (354, 2)], 3000)  # the fifth packet seems to have 128 kB
@settings(suppress_health_check=ANY_FOLDER, deadline=None)
def test_the_first_packets_of_plain_and_compressed_files_are_the_same(tmp_path, count, damage, end):
    """A plain file takes a shorter path, unless it is damaged."""
    content = bytearray(pcap(packets(0, count))[:end] or b"\0")
    for at, value in damage:
        content[at % len(content)] = value
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "compressed").write_bytes(gzip.compress(content))
    results = []
    for name in ("plain", "compressed"):
        try:
            source = open_packets([tmp_path / name])
        except CaptureError:
            results.append(None)
        else:
            results.append((source.sequence, source.last_times))
            source.close()
    assert results[0] == results[1]


def test_files_that_do_not_overlap_are_not_copied(tmp_path):
    """A block handed on as it was read has the file's bytes in one row, record headers and all."""
    contents = [pcap(packets(0, 50)), pcap(packets(50, 100), start=50)]
    for name, content in zip("ab", contents, strict=True):
        (tmp_path / name).write_bytes(content)
    source = open_packets([tmp_path], block_bytes=len(contents[0]))
    for content in contents:
        block = source.read(10)
        assert block is not None
        assert content[24:] in block.data.tobytes()
    source.close()


def test_a_pipe_beside_files(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    feeder = threading.Thread(target=fifo.write_bytes, args=(pcap(packets(10, 20), start=10),))
    feeder.start()
    (tmp_path / "a").write_bytes(pcap(packets(0, 10)))
    (tmp_path / "b").write_bytes(pcap(packets(20, 30), start=20))
    source = open_packets([tmp_path / "b", fifo, tmp_path / "a"])
    assert source.total_bytes is None
    seen = []
    while (block := source.read(0)) is not None:
        seen += [row.seq for row in rows_of(block)]
    feeder.join()
    assert seen == list(range(30))


def test_folders_patterns_and_names(tmp_path):
    deep = tmp_path / "deep" / "er"
    deep.mkdir(parents=True)
    (deep / "z.txt").write_bytes(pcap(packets(0, 1)))
    (deep / "y.gz").write_bytes(gzip.compress(pcap(packets(1, 2), start=1)))
    (tmp_path / "README.md").write_text("No capture.")
    (tmp_path / "notes.gz").write_bytes(gzip.compress(b"No capture."))
    (tmp_path / "empty").touch()
    (tmp_path / "x.pcap").write_bytes(ng_section() + ng_interface())
    os.mkfifo(tmp_path / "nobody-writes")
    names = [str(tmp_path / "x.pcap"), str(deep / "y.gz"), str(deep / "z.txt")]
    for paths in ([tmp_path], [str(tmp_path / "**" / "*.*z*"), tmp_path, tmp_path / "x.pcap"]):
        reading = read(*paths)
        assert sorted(reading.names) == sorted(names)
        assert seqs(reading) == [0, 1]
        assert [p.capture for p in reading.problems] in ([], [str(tmp_path / "notes.gz")])


def test_a_file_in_a_folder_with_the_name_of_a_capture_is_not_ignored(tmp_path):
    """After a crash, a file system may have zeros in place of the first block of a file."""
    good = tmp_path / "kafka-0.pcap"
    good.write_bytes(pcap(packets(0, 3)))
    (tmp_path / "kafka-1.PCAP3").write_bytes(bytes(4096))
    (tmp_path / "kafka-2.pcapng.xz").write_bytes(b"\xfd7zXZ\0")
    (tmp_path / "kafka-3.pcap").touch()  # tcpdump has just created it
    (tmp_path / "kafka-0.pcap.sha256").write_text("No capture.")
    reading = read(tmp_path)
    assert seqs(reading) == [0, 1, 2]
    assert reading.kinds == ["unreadable_file"] * 2
    for problem, reason in zip(reading.problems, ("is not a pcap", "with xz"), strict=True):
        assert reason in problem.detail


def test_one_bad_file_among_good_ones_is_a_problem(tmp_path):
    good = tmp_path / "good"
    good.write_bytes(pcap(packets(0, 3)))
    for name, content in {"none": b"No capture.", "empty": b"", "cut": pcap([])[:20]}.items():
        (tmp_path / name).write_bytes(content)
    bad = [tmp_path / name for name in ("none", "empty", "cut", "missing", "mis*sing")]
    reading = read(good, *bad)
    assert seqs(reading) == [0, 1, 2]
    assert reading.names == [str(good)]
    assert reading.kinds == ["unreadable_file"] * 5
    assert [problem.capture for problem in reading.problems] == list(map(str, bad))
    for problem, reason in zip(
        reading.problems,
        ("is text", "is empty", "ends", "No such", "No such"),
        strict=True,
    ):
        assert problem.stage == "packets"
        assert reason in problem.detail
        assert str(problem.capture) in problem.detail


def test_a_folder_without_permission_is_a_problem(tmp_path, monkeypatch):
    (tmp_path / "good").write_bytes(pcap(packets(0, 1)))
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(folder):
        if os.fspath(folder).endswith("closed"):
            raise PermissionError(13, "Permission denied", folder)
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    reading = read(tmp_path)
    assert (reading.names, reading.kinds) == ([str(tmp_path / "good")], ["unreadable_file"])
    assert reading.problems[0].capture == str(tmp_path / "closed")


def test_problems_without_packets(tmp_path):
    (tmp_path / "zeros").write_bytes(pcap([]) + bytes(100))
    (tmp_path / "none").write_bytes(b"No capture.")
    reading = read(tmp_path / "zeros", tmp_path / "none")
    assert reading.kinds == ["unreadable_file", "damaged_file"]
    assert reading.bytes_read == 124


def test_secrets_are_known_from_the_start_and_once(tmp_path):
    for i, key in enumerate([b"one", b"two", b"one"]):
        secrets = ng_block(10, struct.pack("<II", 0x544C534B, len(key)) + key)
        content = ng_section() + secrets + ng_interface() + ng_enhanced(frame(), i)
        (tmp_path / f"{i}").write_bytes(content)
    source = open_packets([tmp_path])
    assert source.secrets == [b"one", b"two"]
    source.close()
    assert read(tmp_path).secrets == [b"one", b"two"]


def test_nothing_to_read_is_an_error(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "README.md").write_text("No capture.")
    text = tmp_path / "text"
    text.write_text("No capture.")
    for read_from in (open_packets, open_capture):
        with pytest.raises(CaptureError, match="folder: there is no capture file"):
            read_from([folder])
    (folder / "a.pcap\n.xz").write_bytes(b"\xfd7zXZ\0")
    for read_from in (open_packets, open_capture):
        expected = (
            r"folder: there is no capture file; .*a.pcap\\n.xz is compressed with xz: decompress"
        )
        with pytest.raises(CaptureError, match=expected):
            read_from([folder])
    with pytest.raises(CaptureError, match="there is no capture file"):
        open_packets([])
    with pytest.raises(CaptureError, match=r"missing: No such file.*text is text, not a pcap"):
        open_packets([tmp_path / "missing", text])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lzma.compress(b"x"), "is compressed with xz: decompress it first"),
        (bz2.compress(b"x"), "is compressed with bzip2: decompress it first"),
        (gzip.compress(gzip.compress(b"x")), "is compressed twice: decompress it first"),
    ],
    ids=["xz", "bzip2", "twice"],  # the bytes of gzip contain the time
)
def test_other_compression_is_named(tmp_path, data, message):
    (tmp_path / "x.pcap").write_bytes(data)
    with pytest.raises(CaptureError, match=message):
        open_packets([tmp_path / "x.pcap"])


def archive(content):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("kafka.pcap"), io.BytesIO(content))
    return file.getvalue()


def is_refused(path, content, message):
    path.write_bytes(content)
    with pytest.raises(CaptureError, match=re.escape(message)):
        open_packets([path])
    return True


def test_other_formats_are_named(tmp_path):
    path = tmp_path / "kafka.pcap"
    capture = pcap(packets(0, 3))
    assert is_refused(path, archive(capture), "is a tar archive: extract its files first")
    assert is_refused(path, "tcpdump:".encode("utf-16"), "is UTF-16 text: PowerShell")
    assert is_refused(path, "04:17:34 IP \u00fc\n".encode(), "is text, not a pcap")
    assert is_refused(path, b"PAR1\x15\4\x15", "read exported tables without captures")
    assert is_refused(path, b"ARROW1\0\0", "only Parquet files are read")
    assert is_refused(path, b'{"time":"2026-11-29', "only Parquet files are read")
    assert is_refused(path, b"snoop\0\0\0", "`editcap -F pcapng` converts")


@pytest.mark.parametrize("kind", [pcap, lambda packets: ng_section()], ids=["pcap", "pcapng"])
def test_bytes_before_the_header_are_counted(tmp_path, kind):
    """A terminal adds the messages of tcpdump to the capture (`kubectl exec -t`)."""
    path = tmp_path / "kafka.pcap"
    line = b"tcpdump: listening on eth0, link-type EN10MB (Ethernet)\r\n"
    assert is_refused(path, line + kind(packets(0, 3)), f"`tail -c +{len(line) + 1}`")


@pytest.mark.skipif(not shutil.which("sed"), reason="sed is not installed")
def test_changed_line_feeds_are_reported(tmp_path):
    """A terminal inserts CR before each line feed; the command in the message removes them."""
    path = tmp_path / "kafka.pcap"
    content = pcap([frame(b"\n" * 9, seq=number) for number in range(3)])
    path.write_bytes(content.replace(b"\n", b"\r\n"))
    reading = read(path)
    assert reading.kinds[0] == "damaged_file"
    detail = reading.problems[0].detail
    assert "CR was inserted before each line feed" in detail
    command = detail.split("`")[-2]
    restored = subprocess.run(
        ["/bin/sh", "-c", f"{command} kafka.pcap"], cwd=tmp_path, capture_output=True, check=True
    )
    assert restored.stdout == content
    path.write_bytes(ng_section().replace(b"\n", b"\r\n"))
    with pytest.raises(CaptureError, match="CR was inserted"):
        open_packets([path])


def test_other_damage_is_not_a_change_of_line_feeds(tmp_path):
    path = tmp_path / "kafka.pcap"
    content = pcap([frame(b"\n" * 9, seq=number) for number in range(3)])
    path.write_bytes(content.replace(b"\n", b"\r\n", 20))
    reading = read(path)
    assert "damaged_file" in reading.kinds
    assert not any("CR" in problem.detail for problem in reading.problems)


def test_a_file_that_goes_away_meanwhile(tmp_path):
    for i, name in enumerate("ab"):
        (tmp_path / name).write_bytes(pcap(packets(i, i + 1), start=i))
    source = open_packets([tmp_path / "a", tmp_path / "b"])
    (tmp_path / "b").unlink()
    blocks = []
    while (block := source.read(0)) is not None:
        blocks.append(block)
    assert [row.seq for block in blocks for row in rows_of(block)] == [0]
    assert [p.kind for block in blocks for p in block.problems] == ["unreadable_file"]


def test_a_source_follows_the_contract(tmp_path):
    (tmp_path / "a").write_bytes(pcap(packets(0, 1)))
    source: PacketSource = open_packets([tmp_path / "a"])
    assert source.total_bytes == (tmp_path / "a").stat().st_size
    source.close()
    assert source.read(0) is None

"""Key logs: the lines that count, and files that grow while they are read."""

import os
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="cryptography is not installed")

from dissector.errors import CaptureError
from dissector.tls import KeyLog, keylog_source
from dissector.tls.keylog_source import KeyLogSource

RANDOM, OTHER = bytes(range(32)), bytes(range(1, 33))
SECRET = bytes(range(100, 148))


def line(random: bytes = RANDOM, secret: bytes = SECRET, label: str = "CLIENT_RANDOM") -> bytes:
    return f"{label} {random.hex()} {secret.hex()}".encode()


@pytest.mark.parametrize(
    "text",
    [line(), line() + b"\n", line() + b"\r\n", b"\xef\xbb\xbf" + line() + b"\n",
     b"# a comment\n\n" + line(OTHER) + b"\n" + line(), line().upper(), line() + b"\0",
     line() + b"\n\0\0", b"# a comment\r" + line() + b"\r" + line(OTHER)],
)  # fmt: skip
def test_a_line_may_have_any_end(text):
    assert KeyLog(text).find("CLIENT_RANDOM", RANDOM, 48) == SECRET


def test_a_secret_of_another_size_does_not_count():
    for size in range(49):
        keys = KeyLog(line(secret=SECRET[:size]))
        assert keys.find("CLIENT_RANDOM", RANDOM, 48) == (SECRET if size == 48 else None)
    assert KeyLog(line(secret=SECRET[:32])).find("CLIENT_RANDOM", RANDOM, 32) == SECRET[:32]


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_lines_of_a_growing_file_are_whole(tmp_path: Path, size: int):
    """Secrets of a capture come between the parts of a line."""
    lines = [line(bytes([number]) * 32) for number in range(5)]
    text = b"\n".join([lines[0], b"#" * 2000, *lines[1:]])
    path = tmp_path / "keys.log"
    path.write_bytes(b"")
    embedded: list[bytes] = []
    source, keys = KeyLogSource(embedded, path), KeyLog()
    for begin in range(0, len(text), size):
        embedded.append(line(begin.to_bytes(32, "big")))
        with path.open("ab") as file:
            file.write(text[begin : begin + size])
        for each in source.read_new():
            keys.add(each)
    assert all(keys.find("CLIENT_RANDOM", bytes([number]) * 32, 48) for number in range(5))
    assert all(
        keys.find("CLIENT_RANDOM", begin.to_bytes(32, "big"), 48)
        for begin in range(0, len(text), size)
    )


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_large_file_is_read_in_parts(tmp_path: Path, end: bytes, monkeypatch):
    """A part ends with a whole line, so that the parts may be put together again."""
    monkeypatch.setattr(keylog_source, "_CHUNK", 1000)
    path, randoms = tmp_path / "keys.log", [bytes([number]) * 32 for number in range(50)]
    path.write_bytes(end.join(map(line, randoms)))
    parts = [*KeyLogSource([], path).read_new()]
    assert max(map(len, parts)) <= 1000
    assert b"".join(parts) == path.read_bytes()


def test_only_secrets_that_decrypt_are_stored() -> None:
    keys = KeyLog(line() + b"\n" + line(OTHER, label="EXPORTER_SECRET") + b"\n")
    assert (keys.size, keys.sessions) == (1, [RANDOM])


def test_a_file_may_be_truncated_or_removed(tmp_path: Path):
    path = tmp_path / "keys.log"
    path.write_bytes(line(OTHER) + b"\n" + line(OTHER) + b"\n")
    source = KeyLogSource([], path)
    assert b"".join(source.read_new()) == path.read_bytes()
    path.write_bytes(line() + b"\n")
    assert b"".join(source.read_new()) == line() + b"\n"
    path.unlink()
    assert b"".join(source.read_new()) == b""
    path.write_bytes(line(OTHER)[:50])
    assert b"".join(source.read_new()) == line(OTHER)[:50]
    path.write_bytes(line(OTHER) + b"\n")
    assert b"".join(source.read_new()) == line(OTHER) + b"\n"


def test_a_pipe_is_not_a_key_log() -> None:
    read, write = os.pipe()
    os.write(write, line() + b"\n")
    os.close(write)
    with pytest.raises(CaptureError, match="is a pipe: a key log is read again, so name a file"):
        KeyLogSource([], f"/dev/fd/{read}")
    os.close(read)


def test_an_endless_line_is_read_once(tmp_path: Path):
    path = tmp_path / "keys.log"
    path.write_bytes(line() + b"\n" + b"A" * 100_000)
    source = KeyLogSource([], path)
    assert [len(text) for _ in range(3) for text in source.read_new()] == [
        len(line()) + 1 + 100_000, 0, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "hostile",
    [b"A" * 1_000_000, b"A\n" * 500_000, b" " * 1_000_000, b"\n" * 1_000_000,
     line() + b" " * 1_000_000 + b"x", b"CLIENT_RANDOM " + b"a" * 1_000_000,
     line() + b"00" * 500_000],
)  # fmt: skip
def test_hostile_lines_are_ignored(hostile):
    keys = KeyLog(hostile + b"\n" + line(OTHER) + b"\n")
    assert keys.find("CLIENT_RANDOM", OTHER, 48) == SECRET

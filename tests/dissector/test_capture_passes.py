"""Each call reads a `Capture` from the start, or raises an error with the reason."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import dissector
from dissector import Capture, CaptureError, Direction, DissectorError, open_capture

ROOT = Path(__file__).parents[2]
CAPTURE = ROOT / "captures" / "kafka-4-quotas.pcap.zst"
EXCHANGES = 137
"""As the README's summary of this capture has it."""

PASSES: dict[str, Callable[[Capture], int]] = {
    "tables": lambda capture: len(capture.tables("exchanges")["exchanges"]),
    "stream": lambda capture: sum(len(rows) for _, rows in capture.stream(["exchanges"])),
    "exchanges": lambda capture: len(list(capture.exchanges())),
}


@pytest.mark.parametrize("second", PASSES)
@pytest.mark.parametrize("first", PASSES)
def test_a_second_pass_reads_the_files_again(first: str, second: str) -> None:
    with open_capture(CAPTURE) as capture:
        assert PASSES[first](capture) == EXCHANGES
        assert PASSES[second](capture) == EXCHANGES
        assert capture.packets == 523


def test_a_folder_and_a_missing_file_do_not_prevent_a_second_pass(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    capture = open_capture([CAPTURE, tmp_path / "empty", tmp_path / "missing.pcap"])
    for _ in range(2):
        assert PASSES["tables"](capture) == EXCHANGES
        assert len(capture.file_problems) == 2


def test_passes_that_overlap_do_not_disturb_each_other() -> None:
    capture = open_capture(CAPTURE)
    first = capture.exchanges()
    next(first)
    assert len(capture.tables()["exchanges"]) == EXCHANGES
    assert len(list(first)) == EXCHANGES - 1


def test_a_pass_that_was_left_early_does_not_shorten_the_next() -> None:
    capture = open_capture(CAPTURE)
    for _ in capture.exchanges():
        break
    assert PASSES["exchanges"](capture) == EXCHANGES


def test_another_table_in_the_second_pass() -> None:
    capture = open_capture(CAPTURE)
    capture.tables("exchanges")
    assert len(capture.tables("errors")["errors"]) == 3


@pytest.mark.parametrize("second", PASSES)
def test_standard_input_cannot_be_read_again(second: str) -> None:
    code = (
        "import dissector\n"
        "from test_capture_passes import PASSES\n"
        "capture = dissector.open_capture('-')\n"
        "print(PASSES['tables'](capture))\n"
        "try:\n"
        f"    PASSES[{second!r}](capture)\n"
        "except dissector.CaptureError as error:\n"
        "    print(error)\n"
    )
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    with CAPTURE.open("rb") as file:
        shown = subprocess.run(
            [sys.executable, "-c", code],
            stdin=file, capture_output=True, text=True, check=True, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path},
        ).stdout.splitlines()  # fmt: skip
    assert shown == [
        str(EXCHANGES), "standard input cannot be read again: request all tables at once",
    ]  # fmt: skip


def test_a_named_pipe_cannot_be_read_again(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    Thread(target=lambda: pipe.write_bytes(CAPTURE.read_bytes()), daemon=True).start()
    capture = open_capture([pipe, tmp_path / "missing.pcap"])
    assert len(capture.tables("exchanges")["exchanges"]) == EXCHANGES
    with pytest.raises(CaptureError, match=r"/pipe cannot be read again"):
        capture.tables("errors")


def test_a_missing_file_among_others_does_not_prevent_a_second_pass(tmp_path: Path) -> None:
    capture = open_capture([CAPTURE, tmp_path / "missing.pcap"])
    kinds = [capture.tables("problems")["problems"]["kind"].to_pylist() for _ in range(2)]
    assert kinds == [["unreadable_file"]] * 2
    capture.tables("errors")
    assert [each.kind for each in capture.file_problems] == ["unreadable_file"]


def test_a_file_that_has_gone_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap.zst"
    path.write_bytes(CAPTURE.read_bytes())
    capture = open_capture(path)
    capture.tables("exchanges")
    path.unlink()
    with pytest.raises(CaptureError, match="No such file"):
        capture.tables("exchanges")


@pytest.mark.parametrize("each", PASSES)
def test_a_closed_capture_cannot_be_read(each: str) -> None:
    with open_capture(CAPTURE) as capture:
        pass
    capture.close()
    with pytest.raises(CaptureError, match="closed"):
        PASSES[each](capture)


@pytest.mark.parametrize("jobs", [1, 2])
def test_closing_ends_reading(monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    monkeypatch.setattr("dissector.runs.LEAST_BYTES", 0)
    capture = open_capture(CAPTURE, jobs=jobs)
    rows = capture.stream()
    next(rows)
    capture.close()
    with pytest.raises(CaptureError, match="closed"):
        next(rows)


def test_only_names_for_users_are_public() -> None:
    public = {name for name in dir(open_capture(CAPTURE)) if not name.startswith("_")}
    assert public == {
        "as_exchanges", "close", "exchanges", "file_problems", "has_table", "host_names", "packets",
        "paths", "stream", "tables", "without_tcp",
    }  # fmt: skip


def test_the_repr_has_the_file_and_the_position() -> None:
    capture = open_capture([CAPTURE])
    name = repr(str(CAPTURE))
    assert repr(capture) == f"<Capture {name}: not read yet>"
    rows = capture.stream("errors")
    next(rows)
    assert repr(capture).startswith(f"<Capture {name}: being read; ")
    list(rows)
    assert repr(capture) == f"<Capture {name}: read; 523 packets; tables errors>"
    capture.close()
    assert "closed" in repr(capture)


def test_the_repr_of_many_files_is_short() -> None:
    files = sorted((ROOT / "captures").glob("kafka-3*.pcap.zst"))[:5]
    assert repr(open_capture(files)).count("kafka-3") == 3
    assert "and 2 more" in repr(open_capture(files))


def test_exchanges_of_an_api_or_a_client() -> None:
    capture = open_capture(CAPTURE)
    whole = list(capture.exchanges())
    fetches = list(capture.exchanges(api="Fetch"))
    assert fetches == [each for each in whole if each.api == "Fetch"]
    assert len(fetches) == 12
    selected = list(capture.exchanges(api=["Fetch", "Produce"], client_id=["producer"]))
    assert {(each.api, each.client_id) for each in selected} == {("Produce", "producer")}
    assert list(capture.exchanges(client_id="nobody")) == []
    with pytest.raises(DissectorError, match=r"no API is called Fetsch\. Did you mean Fetch\?"):
        capture.exchanges(api="Fetsch")


@pytest.mark.parametrize("given", [3, [None], b"app", [b"app"]])
def test_names_are_text(given: Any) -> None:
    with dissector.open_capture(CAPTURE) as capture:
        with pytest.raises(DissectorError, match=r"^client_id must be a text or several, not "):
            capture.exchanges(client_id=given)
        with pytest.raises(DissectorError, match=r"^api must be a text or several, not "):
            capture.exchanges(api=given)


@pytest.mark.parametrize("given", [3, b"keys", "keys\0", ["keys"]])
def test_a_key_log_is_a_path(given: Any) -> None:
    with pytest.raises(DissectorError, match=r"^keylog must be a path, not "):
        dissector.open_capture(CAPTURE, keylog=given)


def test_a_table_that_does_not_exist() -> None:
    for ask in (Capture.tables, Capture.stream):
        with pytest.raises(DissectorError, match=r"no table exchange; .*Did you mean exchanges\?$"):
            ask(open_capture(CAPTURE), "exchange")


def test_an_exchange_is_one_short_line() -> None:
    for exchange in open_capture(CAPTURE).exchanges():
        shown = repr(exchange)
        assert len(shown) < 200
        assert "\n" not in shown
        assert "\\x" not in shown
        assert f"{exchange.api} v{exchange.api_version}" in shown
        assert f"client_id={exchange.client_id!r}" in shown
        assert exchange.status in shown


def test_a_direction_may_be_named() -> None:
    exchange = next(open_capture(CAPTURE).exchanges(api="CreateTopics"))
    for name, direction in (("request", Direction.REQUEST), ("response", Direction.RESPONSE)):
        explained = exchange.explain(name)  # type: ignore[arg-type]
        assert explained == exchange.explain(direction)
        assert explained is not None
        assert explained.events[-1].length >= 0
    with pytest.raises(DissectorError, match="neither request nor response"):
        exchange.explain("reply")  # type: ignore[arg-type]


def test_the_module_lists_its_names() -> None:
    names = dir(dissector)
    assert names == sorted(dissector.__all__)
    assert {"open_capture", "decode_records", "Exchange", "Direction", "__version__"} <= {*names}
    values: dict[str, Any] = {name: getattr(dissector, name) for name in names}
    assert all(value.__doc__ for value in values.values())
    with pytest.raises(AttributeError, match="nonsense"):
        dissector.nonsense  # noqa: B018


def test_shallow_copies_are_read_one_by_one() -> None:
    capture = open_capture(CAPTURE)
    for each in (copy.copy(capture), capture, copy.copy(capture)):
        assert PASSES["tables"](each) == EXCHANGES

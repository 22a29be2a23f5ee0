"""``kafka-dissector cut``."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.cli import main
from analysis.cutting import driver
from dissector.capture import open_capture
from tests.analysis.commands import Ran, on_terminal, run
from tests.captures.truth import CAPTURES

QUOTAS = str(CAPTURES / "kafka-4-quotas.pcap.zst")
TLS = str(CAPTURES / "kafka-4-tls-secrets.pcapng.zst")


def test_cut(tmp_path: Path, ran: Ran) -> None:
    output = tmp_path / "cut.pcapng"
    command = ["cut", QUOTAS, "--client", "maker", "--where", "throttle_time_ms > 0", "-o"]
    assert f"{output}: 2 exchanges of 1 connection, " in ran(*command, str(output)).out
    written = open_capture(output).tables("exchanges")["exchanges"]
    assert written["throttle_time_ms"].to_pylist() == [15_942, 19_916]
    assert set(written["client_id"].to_pylist()) == {"maker"}
    # The folder of the input stays private.
    assert b"Cut from kafka-4-quotas.pcap.zst: --where" in output.read_bytes()
    assert "pass --overwrite" in ran(*command, str(output), status=2).err
    assert main([*command, str(output), "--overwrite"]) == 0


def test_encrypted_connections_are_reported(tmp_path: Path, ran: Ran) -> None:
    command = ["cut", TLS, "--api", "Produce", "--secrets", "-o", str(tmp_path / "cut.pcapng")]
    printed = ran(*command).out
    assert "8 TLS secrets" in printed
    assert "4 connections with TLS: all packets up to the last selected message" in printed


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([QUOTAS, "--api", "LeaveGroup"], 1, "no exchange is selected"),
        (["-"], 1, "standard input can be read only once"),
        ([QUOTAS, "--where", "latency > 1"], 2, "no column latency"),
        ([QUOTAS, "--context", "-1"], 2, "--context"),
    ],
)
def test_errors(tmp_path: Path, ran: Ran, arguments: list[str], status: int, message: str) -> None:
    output = tmp_path / "cut.pcapng"
    assert message in ran("cut", *arguments, "-o", str(output), status=status).err
    assert not output.exists()


@pytest.mark.parametrize("before", [b"a file of the user", None])
def test_an_interrupted_cut_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    """Also if it is interrupted while the packets that were written are read."""

    def interrupted(*_: object) -> None:
        assert list(tmp_path.glob("*.partial"))
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "_unreadable", interrupted)
    output = tmp_path / "cut.pcapng"
    if before is not None:
        output.write_bytes(before)
    assert main(["cut", QUOTAS, "--client", "maker", "--overwrite", "-o", str(output)]) == 130
    assert [each.read_bytes() for each in tmp_path.iterdir()] == ([before] if before else [])


def test_changed_sequence_numbers_are_reported(tmp_path: Path, ran: Ran) -> None:
    mock = str(CAPTURES / "kafka-python-mock.pcap")
    output = ran("cut", mock, "--api", "Produce", "-o", str(tmp_path / "cut.pcapng")).out
    assert output.splitlines()[1] == (
        "In 1 connection, TCP sequence numbers were changed, because otherwise the exchanges after "
        "removed messages could not be found"
    )


def test_the_output_is_a_file_that_can_be_read_again(ran: Ran) -> None:
    done = ran("cut", QUOTAS, "--client", "maker", "-o", "/dev/null", status=1)
    assert "not a regular file" in done.err


def test_standard_output_gets_the_packets_and_nothing_else(tmp_path: Path) -> None:
    output = tmp_path / "cut.pcapng"
    command = ["cut", QUOTAS, "--client", "maker", "-o"]
    assert run(*command, str(output)).returncode == 0
    done = run(*command, "-")
    assert (done.returncode, done.stdout) == (0, output.read_bytes())
    assert b"standard output: " in done.stderr


def test_packets_do_not_go_to_a_terminal() -> None:
    status, text = on_terminal("cut", QUOTAS, "--client", "maker", "-o", "-")
    assert status == 2
    assert "cannot write pcapng to a terminal" in text

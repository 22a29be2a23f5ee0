"""Which exchanges `show` shows, and what it reports about others."""

from __future__ import annotations

import pytest

from tests.analysis.commands import Ran
from tests.analysis.made_rows import Make, exchange

FRAME = bytes.fromhex("0003 0000 00000007 0003 617070 00000000")


def test_show_chooses(made: Make, ran: Ran) -> None:
    columns = {"api_version": 0, "request_frame": FRAME, "request_bytes": len(FRAME) + 4}
    rows = [
        exchange(**columns),
        exchange(**columns, connection_id=1, correlation_id=8, request_packet=50),
        exchange(**columns, connection_id=2, correlation_id=8, error_count=1, response_packet=50),
    ]

    def chosen(*options: str) -> list[int]:
        made(exchanges=rows)
        lines = ran("show", "x.pcap", *options).out.splitlines()
        return [
            int(line.partition("connection ")[2].partition(",")[0])
            for line in lines
            if "connection " in line
        ]

    assert chosen() == [0, 1, 2]
    assert chosen("--packet", "50") == [1, 2]
    assert chosen("--correlation-id", "8") == [1, 2]
    assert chosen("--correlation-id", "8", "--connection", "2") == [2]
    assert chosen("--only", "errors") == [2]
    assert chosen("--limit", "1") == [0]
    assert chosen("--packet", "99") == []


def test_show_reports_missing_and_further_exchanges(made: Make, ran: Ran) -> None:
    made(exchanges=[exchange()])
    missing = "No exchange in this capture matches the options."
    assert ran("show", "x.pcap", "--connection", "99").err == f"{missing}\n"
    made(exchanges=[exchange(), exchange()])
    error = ran("show", "x.pcap", "--limit", "1").err
    assert error == "Stopped after 1 exchange; raise --limit for more.\n"


@pytest.mark.parametrize(
    ("options", "nearest"),
    [
        (["--packet", "2"], "; the nearest is packet 4 (Metadata request, connection 0)"),
        (["--packet", "7"],
         "; the nearest ones start in packets 5 (Metadata response, connection 0) and 9 (Fetch "
         "request, connection 1)"),
        (["--packet", "10", "--connection", "1"],
         "; the nearest ones start in packets 9 (Fetch request, connection 1) and 15 (Fetch "
         "response, connection 1)"),
        (["--packet", "10", "--connection", "0"],
         "; the nearest is packet 5 (Metadata response, connection 0)"),
        (["--packet", "99"], "; the nearest is packet 15 (Fetch response, connection 1)"),
        (["--packet", "2", "--connection", "9"], ""),
    ],
)  # fmt: skip
def test_show_reports_the_messages_next_to_a_packet(
    options: list[str], nearest: str, made: Make, ran: Ran
) -> None:
    """An engineer selects any packet in Wireshark."""
    fetch = {"connection_id": 1, "api": "Fetch", "api_key": 1}
    made(exchanges=[exchange(), exchange(request_packet=9, response_packet=15, **fetch)])
    hint = f"--packet is the packet in which a message starts{nearest}."
    expected = f"No exchange in this capture matches the options. {hint}\n"
    assert ran("show", "x.pcap", *options).err == expected


def test_show_names_the_file_of_each_exchange_if_there_are_several(made: Make, ran: Ran) -> None:
    """Packet numbers start at 1 in each file."""
    rows = [
        exchange(capture="a.pcap"),
        exchange(capture="b.pcap", connection_id=1),
        exchange(capture="b.pcap", connection_id=2, request_packet=9, response_packet=4),
    ]

    def files(*captures: str) -> list[str]:
        made(exchanges=rows)
        lines = ran("show", *captures, "--packet", "4").out.splitlines()
        return [line for line in lines if line.startswith("file ")]

    assert files("a.pcap", "b.pcap") == [
        "file a.pcap", "file b.pcap", "file b.pcap, the response in a later one",
    ]  # fmt: skip
    assert files("a.pcap") == []
    made(exchanges=rows)
    assert ran("show", "a.pcap", "b.pcap", "--packet", "8").err.endswith(
        "packets 5 (Metadata response, connection 1, file b.pcap) and 9 (Metadata request, "
        "connection 2, file b.pcap, the response in a later one).\n"
    )

"""Run Kafka traffic and `sniff` in a separate network.

    python loopback.py FOLDER TRAFFIC TOOL ARGUMENT...

TRAFFIC is `clients`, real clients of librdkafka's mock cluster, or a file with the pickled segments
of a connection, each with its sender: 0 for the client. The arguments are those of
`kafka-dissector sniff`. TOOL writes the pipe that it reads: tcpdump, dumpcap or none. Its output
goes to FOLDER/out and FOLDER/err, its packets to FOLDER/kept.pcapng, the clients' log to
FOLDER/log. The exit status is that of `sniff`.
"""

from __future__ import annotations

import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.analysis.live.sniffing import ROOT, SNIFF, wait_for
from tools.record import clients
from tools.record.kafka.recording import enter_new_network
from tools.record.mock import MockCluster
from tools.record.scenarios.librdkafka import beginning, consumer, produce, read

TOOLS = {
    "tcpdump": ["tcpdump", "-i", "lo", "-s", "0", "-B", "16384", "-U", "-w", "-"],
    "dumpcap": ["dumpcap", "-i", "lo", "-q", "-w", "-"],
}


PAUSE = 0.004
"""Seconds between segments: a live block of 0.1 s ends inside its messages."""
LAST = b"the last packet"
"""A datagram. When it is written, all packets before it have been read."""


def main(folder: Path, traffic: str, tool: str, arguments: list[str]) -> int:
    enter_new_network()
    record = folder / "kept.pcapng"
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        writer = None
        if tool in TOOLS:
            writer = subprocess.Popen(
                TOOLS[tool], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        sniffer = subprocess.Popen(
            [*SNIFF, *arguments, "--write", record], cwd=ROOT, stdout=out, stderr=err,
            stdin=writer.stdout if writer else None,
        )  # fmt: skip
    wait_for_sniffer(folder / "err", sniffer)
    if traffic == "clients":
        run_clients(folder / "log")
    else:
        send_segments(pickle.loads(Path(traffic).read_bytes()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(LAST, ("127.0.0.1", 9))
    wait_for(lambda: LAST in record.read_bytes())
    (writer or sniffer).send_signal(signal.SIGINT)
    return sniffer.wait(180)


def wait_for_sniffer(log: Path, sniffer: subprocess.Popen[bytes]) -> None:
    """Wait until it reports that it captures, or ends."""
    wait_for(lambda: "capturing" in log.read_text() or sniffer.poll() is not None)
    if sniffer.returncode is not None:
        raise ChildProcessError(log.read_text())


def run_clients(log: Path) -> None:
    """Run producers and a consumer; they log their requests."""
    with clients.standard_error_to(log), MockCluster(3) as cluster:
        cluster.create_topic("orders", 3)
        send_traffic(cluster.bootstrap)


def send_segments(segments: list[tuple[int, bytes]]) -> None:
    """Send segments over a connection to the port of brokers."""
    with socket.create_server(("127.0.0.1", 9092)) as server:
        client = socket.create_connection(server.getsockname())
        ends = client, server.accept()[0]
        for end in ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for sender, segment in segments:
            ends[sender].sendall(segment)
            ends[1 - sender].recv(len(segment), socket.MSG_WAITALL)
            time.sleep(PAUSE)
        for end in ends:
            end.close()


def send_traffic(bootstrap: str) -> None:
    for acks in ("0", "1", "all"):
        produce(bootstrap, f"acks-{acks}", "orders", 20, {"acks": acks, "linger.ms": 0})
    produce(bootstrap, "packed", "orders", 500, {"compression.type": "zstd", "linger.ms": 20})
    reader = consumer(bootstrap, "reader", "unused", {"check.crcs": True})
    reader.assign(beginning("orders", range(3)))
    read(reader, 560)
    reader.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))

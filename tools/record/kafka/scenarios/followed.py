"""Clients and coordinators that log their work: tests compare answers with these logs."""

from __future__ import annotations

import time

from tools.record.kafka import clients
from tools.record.kafka.scenarios import recorded, scenario, tap_clients

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@scenario
def kafka_4_followed() -> None:
    about = (
        "a producer, a classic group of up to three (one leaves, one is killed), a consumer group "
        "(KIP-848) of two, transactions: commit, abort, timed out; all log their records"
    )
    command, _ = clients.in_python("followed")
    with recorded(
        "kafka-4-followed", about, "work:3:1", prepare=tap_clients, settings=SETTINGS
    ) as cluster:
        recording = cluster.recording

        def follow(name: str, role: str, *given: str) -> None:
            processes[name] = recording.start(
                name, [*command, cluster.bootstrap, role, name, "work", *given]
            )

        processes = {}
        soon = ("session.timeout.ms=6000", "heartbeat.interval.ms=500")
        classic = ("workers", "30", "20", *soon)
        follow("a", "member", *classic)
        time.sleep(3)
        follow("producer", "produce", "150", "150")
        follow("d", "member", "modern", "24", "16", "group.protocol=consumer")
        time.sleep(3)
        follow("b", "member", "workers", "6", "60", *soon)
        time.sleep(3)
        follow("e", "member", "modern", "6", "60", "group.protocol=consumer")
        follow("copier", "transact")
        time.sleep(4)
        follow("c", "member", *classic)
        time.sleep(3)
        recording.kill(processes["c"])
        for name in ("producer", "copier", "e", "b", "d", "a"):
            if code := processes[name].wait(60):
                raise RuntimeError(f"{name} ended with {code}:\n{recording.log(name)[-4000:]}")
        cluster.python("followed", "audit", "auditor", "work", "workers", "modern")

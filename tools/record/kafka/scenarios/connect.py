"""Kafka Connect: workers in a group, and the connectors that they run."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any, Final

from tools.record.kafka import artifacts, clients
from tools.record.kafka.recording import Recording, end, wait_for
from tools.record.kafka.scenarios import recorded, scenario, tap_clients

FILE: Final = "org.apache.kafka.connect.file.FileStream"
TEXT: Final = "org.apache.kafka.connect.storage.StringConverter"
WORKER: Final = {
    "group.id": "cluster",
    "key.converter": TEXT,
    "value.converter": TEXT,
    "scheduled.rebalance.max.delay.ms": "3000",
    "exactly.once.source.support": "enabled",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
} | {
    f"{topic}.storage.{name}": value.format(topic)
    for topic in ("config", "offset", "status")
    for name, value in (("topic", "{}s"), ("replication.factor", "1"))
}


class Worker:
    """A worker of Kafka Connect, and its REST interface."""

    def __init__(self, recording: Recording, classpath: str, bootstrap: str, number: int) -> None:
        self._url = f"http://127.0.0.1:{8082 + number}/connectors"
        name = f"worker-{number}"
        own = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "listeners": f"http://127.0.0.1:{8082 + number}",
        }
        settings = recording.work / f"{name}.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in (WORKER | own).items()))
        program = ["-cp", classpath, "org.apache.kafka.connect.cli.ConnectDistributed"]
        command = [*clients.JVM[:-1], "-Xmx400m", *program, str(settings)]
        self._process = recording.start(name, command)
        wait_for(lambda: self.request("GET", "") is not None, f"{name} starts", 90)

    def request(self, method: str, path: str, body: object = None) -> Any:
        """The response of the REST interface; None if it fails, as during a rebalance."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, content, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read() or b"{}")
        except OSError:
            return None

    def create(
        self, name: str, kind: str, file: Path, state: str = "RUNNING", **settings: str
    ) -> None:
        """Create a connector, and wait until its task has a state.

        `settings` has underscores in place of the dots in their names.
        """
        config = {"connector.class": f"{FILE}{kind}Connector", "file": str(file)}
        config |= {key.replace("_", "."): value for key, value in settings.items()}
        connector = {"name": name, "config": config}
        wait_for(lambda: self.request("POST", "", connector) is not None, f"{name} is created", 60)

        def holds() -> bool:
            status = self.request("GET", f"/{name}/status") or {"tasks": []}
            return [task["state"] for task in status["tasks"]] == [state]

        wait_for(holds, f"{name} is {state}", 60)

    def stop(self) -> None:
        """Shut the worker down."""
        end(self._process)


@scenario
def kafka_4_connect() -> None:
    artifacts.tools()
    classpath = artifacts.connect()
    about = (
        f"Kafka Connect {artifacts.CONNECT}: a source with exactly-once support, a sink, a sink "
        "whose task fails and is restarted, a worker that comes and leaves; kafka-consumer-groups"
    )
    describe = ("consumer.group.ConsumerGroupCommand", "--describe", "--group", "connect-sink")
    with recorded("kafka-4-connect", about, "lines:1:1", prepare=tap_clients) as cluster:
        recording = cluster.recording
        lines, copies = recording.work / "lines.txt", recording.work / "copies.txt"
        lines.write_text("".join(f"line {number}\n" for number in range(50)))
        first = Worker(recording, classpath, cluster.bootstrap, 1)
        first.create("source", "Source", lines, topic="lines")
        first.create("sink", "Sink", copies, topics="lines")
        wrong = {"value_converter": "org.apache.kafka.connect.json.JsonConverter"}
        broken = recording.work / "broken.txt"
        first.create("broken", "Sink", broken, "FAILED", topics="lines", **wrong)
        second = Worker(recording, classpath, cluster.bootstrap, 2)
        for number in range(3):
            cluster.tool(f"describe-{number}", *describe)
        second.stop()
        restart = ("POST", "/broken/tasks/0/restart")
        wait_for(lambda: first.request(*restart) is not None, "a restart is accepted", 60)
        wait_for(lambda: _restarted(recording), "the failed task restarts", 60)
        first.stop()


def _restarted(recording: Recording) -> bool:
    """Whether the group of the failed task had members again, and later none."""
    return recording.log("node-1").count("Group connect-broken with generation") > 1

"""Apache Kafka's brokers and controllers as local processes, on fixed ports.

Node N listens for clients on port 9091 + N and for the controller quorum on 19091 + N. Heaps,
threads and internal topics are small, because a capture needs little traffic.
"""

from __future__ import annotations

import base64
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import HERE, SMALL_JVM
from tools.record.kafka.recording import Recording, end, wait_for

CLUSTER_ID = "cmVjb3JkZXIta2Fma2EtMQ"
JVM = [*SMALL_JVM, "-Xmx320m", "-Xms64m"]
STARTED = re.compile(r"Kafka Server started|\[Kafka ?Server (?:id=)?\d+\],? started")

COMMON = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "500",
}


@dataclass(frozen=True, slots=True)
class Node:
    """One process of a cluster."""

    id: int
    roles: str = "broker,controller"
    """As in process.roles; empty for a broker that registers with ZooKeeper."""
    settings: Mapping[str, str] = field(default_factory=dict)
    disks: int = 1
    host: str = ""
    """Address of its listeners; default: that of the cluster."""
    data: Path | None = None
    """Folder of its log directories; default: in its own folder."""

    @property
    def name(self) -> str:
        return f"node-{self.id}"

    @property
    def port(self) -> int:
        return 9091 + self.id

    @property
    def controller_port(self) -> int:
        return 19091 + self.id

    @property
    def directory(self) -> str:
        """Id of the node's log directory."""
        return base64.urlsafe_b64encode(b"dir-of-node-%04d" % self.id)[:22].decode()

    @property
    def is_broker(self) -> bool:
        return self.roles != "controller"


class Cluster:
    """A context manager that starts all nodes, and shuts them down at the end."""

    def __init__(
        self,
        recording: Recording,
        version: str,
        classpath: str,
        nodes: Sequence[Node] = (Node(1),),
        settings: Mapping[str, str] | None = None,
        *,
        format_with: Sequence[str] = (),
        protocol: str = "PLAINTEXT",
        host: str = "127.0.0.1",
        cluster_id: str = CLUSTER_ID,
    ) -> None:
        self.recording = recording
        self.version = version
        self.classpath = classpath
        self.nodes = {node.id: node for node in nodes}
        self.bootstrap = ",".join(
            f"{node.host or host}:{node.port}" for node in nodes if node.is_broker
        )
        self._settings = dict(settings or {})
        self._format_with = format_with
        self._protocol = protocol
        self._host = host
        self._id = cluster_id
        self._awaited: dict[int, int] = {}
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        recording.software.append(f"Apache Kafka {version}")

    def __enter__(self) -> Self:
        for node in self.nodes.values():
            self._folder(node.id).mkdir()
            self.configure(node.id)
            if node.roles:
                self.format(node.id)
        if not self.recording.tapped:
            self.recording.tap()
        for node in self.nodes.values():
            self.start(node.id, wait=False)
        for node in self.nodes.values():
            self.wait(node.id)
        return self

    def __exit__(self, *_: object) -> None:
        # Brokers first: a broker unregisters at a controller that still runs.
        for number in sorted(self._running, key=lambda number: not self.nodes[number].is_broker):
            self.stop(number)

    def start(self, number: int, *, wait: bool = True) -> None:
        """Start a node, and wait until it serves."""
        node, folder = self.nodes[number], self._folder(number)
        logger = f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"
        if artifacts.numbers(self.version) < (4,):
            logger = f"-Dlog4j.configuration=file:{HERE / 'log4j.properties'}"
        logs = [logger, f"-Drequest.log={folder / 'request.log'}"]
        program = ["-cp", self.classpath, "kafka.Kafka", str(folder / "properties")]
        command = [*JVM, *logs, *program]
        self._awaited[number] = self._starts(number) + 1
        self.recording.note("started", node=number)
        self._running[number] = self.recording.start(node.name, command)
        if wait:
            self.wait(number)

    def wait(self, number: int) -> None:
        """Wait until a node logs that it has started."""
        name = self.nodes[number].name

        def started() -> bool:
            if self._running[number].poll() is not None:
                raise RuntimeError(f"{name} ended:\n{self.recording.log(name)[-4000:]}")
            return self._starts(number) >= self._awaited[number]

        wait_for(started, f"{name} starts", 90)

    def java(
        self,
        program: str,
        *arguments: str,
        name: str = "",
        classpath: str = "",
        bootstrap: str = "",
    ) -> str:
        """Run a Java program to its end, and return its output.

        `name`: of its log; default: that of the program. `classpath`: default: the clients of the
        cluster's release. `bootstrap`: first argument; default: the brokers of the cluster.
        """
        command, _ = clients.in_java(classpath or artifacts.client(self.version), program)
        given = [bootstrap or self.bootstrap, *arguments]
        return self.recording.run(name or program, [*command, *given])

    def start_java(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a Java program under a name; it ends with the recording at the latest."""
        command, _ = clients.in_java(artifacts.client(self.version), program)
        return self.recording.start(name, [*command, self.bootstrap, *arguments])

    def python(self, program: str, *arguments: str, packages: Path | None = None) -> str:
        """Run a Python program to its end, and return its output."""
        command, env = clients.in_python(program, packages)
        return self.recording.run(program, [*command, self.bootstrap, *arguments], env)

    def tool(self, name: str, command: str, *arguments: str) -> None:
        """Run an administration tool of Kafka; its output is in NAME.log."""
        program = [*clients.JVM, "-cp", artifacts.tools(), f"org.apache.kafka.tools.{command}"]
        bootstrap = ["--bootstrap-server", self.bootstrap]
        self.recording.run(name, [*program, *bootstrap, *arguments])

    def process(self, number: int) -> subprocess.Popen[bytes]:
        """The process of a running node."""
        return self._running[number]

    def stop(self, number: int) -> None:
        """Shut a node down."""
        self.recording.note("stopped", node=number)
        end(self._running.pop(number))

    def kill(self, number: int) -> None:
        """Kill a node. Its pending requests get no response and no line in the log."""
        node = self.nodes[number]
        self.recording.kill(self._running.pop(number))
        self.recording.note(
            "killed", node=number, port=node.port, controller_port=node.controller_port
        )

    @contextmanager
    def paused(self, number: int) -> Iterator[None]:
        """A context manager in which a node is stopped, while its kernel accepts connections and
        data.
        """
        self.recording.note("paused", node=number)
        self.process(number).send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process(number).send_signal(signal.SIGCONT)
            self.recording.note("resumed", node=number)

    def _starts(self, number: int) -> int:
        log = self.recording.work / f"{self.nodes[number].name}.log"
        return len(STARTED.findall(log.read_text())) if log.exists() else 0

    def _folder(self, number: int) -> Path:
        return self.recording.work / self.nodes[number].name

    def configure(self, number: int, **changed: str) -> None:
        """Write a node's configuration; `changed` has underscores for the dots of its names."""
        node, folder = self.nodes[number], self._folder(number)
        settings = COMMON | self._addresses(node) | self._settings | dict(node.settings)
        settings |= {name.replace("_", "."): value for name, value in changed.items()}
        data = node.data or folder / "data"
        disks = (str(data / f"{disk}") for disk in range(node.disks))
        settings["log.dirs"] = ",".join(disks)
        lines = (f"{key}={value}\n" for key, value in settings.items())
        (folder / "properties").write_text("".join(lines))

    def format(self, number: int) -> None:
        """Format the log directory of a node in a KRaft cluster."""
        node = self.nodes[number]
        command = [*JVM, "-cp", self.classpath, "kafka.tools.StorageTool", "format"]
        properties = str(self._folder(number) / "properties")
        known = ["--cluster-id", self._id, "--config", properties]
        given = [*self._voters(node), *self._format_with]
        self.recording.run(f"{node.name}-format", [*command, *known, *given])

    def _voters(self, node: Node) -> list[str]:
        """Options of the quorum for the format of a log directory."""
        controllers = [other for other in self.nodes.values() if "controller" in other.roles]
        if node not in controllers:
            return ["--no-initial-controllers"]
        if len(controllers) == 1:
            return ["--standalone"]
        listed = (
            f"{other.id}@{other.host or self._host}:{other.controller_port}:{other.directory}"
            for other in controllers
        )
        return ["--initial-controllers", ",".join(listed)]

    def _addresses(self, node: Node) -> dict[str, str]:
        host = node.host or self._host
        zookeeper = {"broker.id": str(node.id), "zookeeper.connect": f"{self._host}:2181"}
        if artifacts.numbers(self.version) < (3,):  # KIP-103 names listeners, as of 0.10.2
            return zookeeper | {"host.name": host, "port": str(node.port)}
        clients = f"CLIENTS://{host}:{node.port}"
        controllers = f"CONTROLLERS://{host}:{node.controller_port}"
        protocols = f"CLIENTS:{self._protocol},CONTROLLERS:PLAINTEXT"
        addresses = {
            "listener.security.protocol.map": protocols, "inter.broker.listener.name": "CLIENTS",
        }  # fmt: skip
        if node.is_broker:
            addresses["advertised.listeners"] = clients
        if not node.roles:
            return addresses | zookeeper | {"listeners": clients}
        listeners = {"broker": clients, "controller": controllers}
        voters = (other for other in self.nodes.values() if "controller" in other.roles)
        return addresses | {
            "process.roles": node.roles,
            "node.id": str(node.id),
            "listeners": ",".join(listeners[role] for role in node.roles.split(",")),
            "controller.listener.names": "CONTROLLERS",
            "controller.quorum.bootstrap.servers": ",".join(
                f"{other.host or self._host}:{other.controller_port}" for other in voters
            ),
        }


class ZooKeeper:
    """A context manager for a ZooKeeper on port 2181, which brokers up to 3.9 support."""

    def __init__(self, recording: Recording, classpath: str) -> None:
        self._recording = recording
        self._classpath = classpath

    def __enter__(self) -> Self:
        work = self._recording.work
        settings = work / "zookeeper.properties"
        lines = [f"dataDir={work / 'zookeeper'}", "clientPort=2181", "admin.enableServer=false"]
        settings.write_text("\n".join(lines))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        logger = f"-Dlog4j.configuration=file:{HERE / 'log4j.properties'}"
        program = ["-cp", self._classpath, main, str(settings)]
        # reload4j has no management beans, which ZooKeeper 3.4 registers.
        options = ["-Drequest.log=/dev/null", "-Dzookeeper.jmx.log4j.disable=true"]
        command = [*JVM, logger, *options, *program]
        self._process = self._recording.start("zookeeper", command)
        log = self._recording.work / "zookeeper.log"
        wait_for(lambda: "binding to port" in log.read_text(), "ZooKeeper starts", 30)
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)

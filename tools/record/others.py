"""python -m tools.record.others PROTOCOL...: record protocols that are not Kafka.

Servers and clients are Debian's: nginx-light, nghttp2-server, nghttp2-client, python3-grpcio,
redis-server, postgresql, mariadb-server, rabbitmq-server, amqp-tools, mosquitto, mosquitto-clients,
nats-server, zookeeper, openssh-server, dnsmasq-base, bind9, bind9-dnsutils, openssl, curl, php-cgi,
libfcgi-bin, openvswitch-switch, openvswitch-testcontroller. Each runs as root in a separate
network namespace. The capture of its port is `captures/other/PROTOCOL.pcap.zst`, with a row in the
ledger.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from tools.record.kafka.recording import end, enter_new_network, pack, wait_for
from tools.record.ledger import CAPTURES, put
from tools.record.others_binary import EXCHANGES
from tools.record.recording import Tool, captured
from tools.record.running import main

LARGEST = 60_000
"""Bytes of a capture as committed."""
HEAD = "| other | what is in it | server and client | recorded | packets |\n|---|---|---|---|---|\n"
TITLE = "\n## Other protocols\n"
HERE = Path(__file__).parent


class Stage:
    """A working folder for one protocol, with its servers, which end with it, and clients."""

    def __init__(self, work: Path, port: int, stack: ExitStack) -> None:
        self.work, self.port = work, port
        self._stack = stack

    def server(self, *command: str, user: str = "root", **environment: str) -> None:
        """Start a server, and wait until it listens."""
        self.background(*command, user=user, **environment)
        wait_for(self._listens, f"{command[0]} listens: {self.work}/server.txt", 60)

    def background(self, *command: str, user: str = "root", **environment: str) -> None:
        """Start a program that runs until the recording ends."""
        output = self._stack.enter_context((self.work / "server.txt").open("ab"))
        process = subprocess.Popen(
            [*_as(user), *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            cwd=self.work, env=os.environ | environment,
        )  # fmt: skip
        self._stack.callback(end, process)

    def _listens(self) -> bool:
        """Whether a server listens, from /proc/net, since a connection would be captured."""
        port, listening = f":{self.port:04X}", "0A"
        tables = (Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
        lines = (line.split() for table in tables for line in table.splitlines()[1:])
        return any(each[1].endswith(port) and each[3] == listening for each in lines)

    def run(self, *command: str, stdin: str = "", user: str = "root", **environment: str) -> None:
        """Run a client to its end; `stdin` is its input."""
        subprocess.run(
            [*_as(user), *command], input=stdin.encode(), capture_output=True, cwd=self.work,
            env=os.environ | environment, timeout=60, check=True,
        )  # fmt: skip

    def talk(self, *lines: bytes, pause: float = 0.1) -> None:
        """A client that sends `lines`, and reads until the server closes the connection or is
        silent.
        """
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            for line in lines:
                connection.sendall(line)
                time.sleep(pause)
            connection.settimeout(0.2)
            with suppress(TimeoutError):
                while connection.recv(1 << 16):
                    pass

    def file(self, name: str, content: str) -> str:
        """A file in the folder; its path."""
        path = self.work / name
        path.write_text(content)
        return str(path)


def _as(user: str) -> list[str]:
    return [] if user == "root" else ["runuser", "-u", user, "--"]


def http(stage: Stage) -> None:
    """GET and POST, kept open and closed, chunked and ranges | nginx, curl"""
    pages = "".join(f"{number} squared is {number * number}\n" for number in range(2000))
    stage.file("page.txt", pages)
    conf = stage.file(
        "nginx.conf",
        "daemon off; pid nginx.pid; error_log stderr; events {} http { access_log off;"
        f" client_body_temp_path body; server {{ listen {stage.port}; root .; autoindex on; }} }}",
    )
    stage.server("nginx", "-p", str(stage.work), "-c", conf)
    url = f"http://127.0.0.1:{stage.port}"
    stage.run("curl", "-s", *[f"{url}/page.txt"] * 2, f"{url}/", f"{url}/none")
    stage.run("curl", "-s", "-r", "100-300", f"{url}/page.txt")
    stage.run("curl", "-s", "-H", "Transfer-Encoding: chunked", "-d", "a=1&b=2", f"{url}/form")


def http2(stage: Stage) -> None:
    """HTTP/2 without TLS, streams at once | nghttpd, nghttp, h2load"""
    stage.file("page.html", "<p>word</p>" * 200)
    stage.server("nghttpd", "--no-tls", "-d", str(stage.work), str(stage.port))
    url = f"http://127.0.0.1:{stage.port}/page.html"
    stage.run("nghttp", "-n", url, url, f"{url}?other")
    stage.run("h2load", "-n", "12", "-c", "2", "-m", "3", url)


def grpc(stage: Stage) -> None:
    """gRPC: unary calls and a stream of binary messages | python3-grpcio"""
    program = str(HERE / "others_grpc.py")
    stage.server("/usr/bin/python3", program, "serve", str(stage.port))
    stage.run("/usr/bin/python3", program, "call", str(stage.port))


def redis(stage: Stage) -> None:
    """RESP2 and RESP3, pipelines, binary values, publish | redis-server, redis-cli"""
    stage.server("redis-server", "--port", str(stage.port), "--save", "", "--dir", str(stage.work))
    client = ("redis-cli", "-p", str(stage.port))
    stage.run(
        *client, stdin="SET a 1\nINCR a\nLPUSH l 1 2 3\nLRANGE l 0 -1\nINFO server\nPUBLISH c x"
    )
    stage.run(*client, "-3", stdin="HSET h a 1 b 2\nHGETALL h\nCONFIG GET max*\nGET none")
    stage.run(*client, "-x", "SET", "binary", stdin="\x00\x00\x00\x10\x00\x03\x00\x01" * 200)
    stage.run(*client, "--pipe", stdin="".join(f"SET key-{n} {n}\r\n" for n in range(300)))
    stage.run(*client, "GET", "binary")


def postgresql(stage: Stage) -> None:
    """plain and prepared statements, COPY in binary, an error | PostgreSQL, psql, pgbench"""
    programs = max(Path("/usr/lib/postgresql").iterdir()) / "bin"
    data = str(stage.work / "data")
    stage.run(f"{programs}/initdb", "-A", "trust", "-D", data, user="postgres")
    stage.server(
        f"{programs}/postgres", "-D", data, "-p", str(stage.port), "-k", str(stage.work),
        user="postgres",
    )  # fmt: skip
    where = ("-h", "127.0.0.1", "-p", str(stage.port), "-U", "postgres")
    sql = (
        "create table t as select n, repeat('x', n) s from generate_series(1, 300) n;"
        "\nselect * from t where n < 20;\nselect nothing;\n\\copy t to '/dev/null' binary\n"
        "select decode('0000001000030001', 'hex'), '\\x00'::bytea;\n"
    )
    stage.run("psql", *where, stdin=sql, user="postgres")
    script = stage.file("bench.sql", "\\set n random(1, 300)\nselect s from t where n = :n;\n")
    stage.run(
        "pgbench", "-n", "-M", "prepared", "-t", "20", "-f", script, *where, "postgres",
        user="postgres",
    )  # fmt: skip


def mysql(stage: Stage) -> None:
    """log-in, queries, an error, many short statements, rows of numbers | mariadbd, mariadb"""
    data = str(stage.work / "data")
    stage.run("mariadb-install-db", f"--datadir={data}", "--user=mysql")
    stage.server(
        "mariadbd", "--no-defaults", f"--datadir={data}", f"--port={stage.port}", "--user=mysql",
        "--skip-grant-tables", "--skip-networking=0", f"--socket={stage.work}/s",
        f"--pid-file={stage.work}/pid",
    )  # fmt: skip
    client = ("mariadb", "-h", "127.0.0.1", "-P", str(stage.port))
    inserts = "".join(f"insert into d.t values ({n});\n" for n in range(40))
    stage.run(*client, stdin=f"create database d; create table d.t (n int);\n{inserts}")
    stage.run(*client, "--force", stdin="select * from d.t; show variables like 'c%'; select none;")
    stage.run(*client, "-C", stdin="select repeat('kafka', 300);")


def amqp(stage: Stage) -> None:
    """AMQP 0-9-1: a queue, messages published, got and consumed | rabbitmq-server, amqp-tools"""
    stage.file("enabled", "[].")
    stage.server(
        "/usr/lib/rabbitmq/bin/rabbitmq-server", user="rabbitmq",
        RABBITMQ_MNESIA_BASE=str(stage.work), RABBITMQ_LOG_BASE=str(stage.work),
        RABBITMQ_NODE_PORT=str(stage.port), RABBITMQ_NODENAME="rabbit@localhost",
        RABBITMQ_ENABLED_PLUGINS_FILE=str(stage.work / "enabled"), HOME=str(stage.work),
        RABBITMQ_PID_FILE=str(stage.work / "pid"),
    )  # fmt: skip
    where = ("--server", "127.0.0.1", "--port", str(stage.port))
    stage.run("amqp-declare-queue", *where, "-q", "work")
    for number in range(12):
        stage.run("amqp-publish", *where, "-r", "work", "-b", f"task {number} " + "-" * number**2)
    stage.run("amqp-get", *where, "-q", "work")
    stage.run("amqp-consume", *where, "-q", "work", "-c", "10", "cat")


def mqtt(stage: Stage) -> None:
    """MQTT 3.1.1 and 5, QoS 0, 1 and 2, retained messages, a will | mosquitto, its clients"""
    stage.server("mosquitto", "-p", str(stage.port))
    where = ("-h", "127.0.0.1", "-p", str(stage.port), "-t", "house/kitchen")
    for quality in "012":
        stage.run("mosquitto_pub", *where, "-q", quality, "-r", "-m", f"{quality} degrees")
    lines = "".join(f"{number} kW\n" for number in range(40))
    stage.run("mosquitto_pub", *where, "-V", "5", "-q", "1", "-l", stdin=lines)
    stage.run("mosquitto_sub", *where, "-C", "1", "--will-topic", "gone", "--will-payload", "gone")


def nats(stage: Stage) -> None:
    """NATS: CONNECT, SUB, PUB and HPUB, with binary payloads | nats-server, a script"""
    stage.server("nats-server", "-a", "127.0.0.1", "-p", str(stage.port))
    payload = b"\0\0\0\x10\0\3\0\1" * 20
    publish = b"PUB room %d\r\n%s\r\n" % (len(payload), payload)
    stage.talk(
        b'CONNECT {"verbose":true,"headers":true}\r\n', b"SUB room 1\r\nPING\r\n", publish * 5,
        b"HPUB room 22 24\r\nNATS/1.0\r\nA: bcdef\r\n\r\nxy\r\n", b"UNSUB 1\r\n",
    )  # fmt: skip


def zookeeper(stage: Stage) -> None:
    """sessions, nodes made, read, watched and removed; a four-letter word | ZooKeeper, zkCli"""
    conf = stage.file(
        "zoo.cfg",
        f"dataDir={stage.work}/data\nclientPort={stage.port}\n4lw.commands.whitelist=*\n"
        "admin.enableServer=false\n",
    )
    java = ("java", "-cp", "/etc/zookeeper/conf:/usr/share/java/*")
    stage.server(*java, "org.apache.zookeeper.server.quorum.QuorumPeerMain", conf)
    lines = [
        "create /a one", "create -s /a/n two", "create -e /brief x", "get -w /a", "set /a three",
        "ls -R /", "stat /a", "getAcl /a", "delete /brief", "get /none", "sync /", "quit",
    ]  # fmt: skip
    client = (*java, "org.apache.zookeeper.ZooKeeperMain", "-server", f"127.0.0.1:{stage.port}")
    for _ in range(2):
        stage.run(*client, stdin="\n".join(lines))
    stage.talk(b"srvr")


def ssh(stage: Stage) -> None:
    """SSH: key exchange, a log-in, commands, a copy | OpenSSH"""
    for name in ("host", "user"):
        stage.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stage.work / name))
    Path("/run/sshd").mkdir(exist_ok=True)
    keys = stage.file("authorized", (stage.work / "user.pub").read_text())
    stage.server(
        "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-p", str(stage.port), "-h",
        str(stage.work / "host"), "-o", f"AuthorizedKeysFile={keys}", "-o", "StrictModes=no",
        "-o", "PermitRootLogin=yes",
    )  # fmt: skip
    client = (
        "ssh", "-p", str(stage.port), "-i", str(stage.work / "user"), "-o",
        "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "root@127.0.0.1",
    )  # fmt: skip
    stage.run(*client, "seq 500")
    stage.run(*client, "wc -c", stdin="word " * 1000)


def dns(stage: Stage) -> None:
    """DNS over TCP: one or many questions per connection | dnsmasq, dig"""
    stage.server(
        "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", f"--port={stage.port}",
        "--no-resolv", "--no-hosts", "--address=/kafka.test/192.0.2.7", "--user=root",
        "--log-facility=-", "--txt-record=long.test," + "x" * 200,
    )  # fmt: skip
    where = ("dig", "@127.0.0.1", "-p", str(stage.port), "+tcp", "+tries=1")
    for name in ("kafka.test", "none.test", "broker-1.kafka.test"):
        stage.run(*where, name)
    stage.run(*where, "+noedns", "kafka.test")
    names = [f"broker-{number}.kafka.test" for number in range(20)]
    stage.run(*where, "+keepopen", *names, "long.test", "TXT")


def tls(stage: Stage) -> None:
    """TLS 1.2 and 1.3 with text, without secrets | openssl s_server, s_client"""
    files = ("-keyout", "key.pem", "-out", "certificate.pem")
    stage.run(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=other.test",
        "-days", "1", *files,
    )  # fmt: skip
    stage.server(
        "openssl", "s_server", "-accept", str(stage.port), "-cert", "certificate.pem", "-key",
        "key.pem", "-www",
    )  # fmt: skip
    for version in ("-tls1_2", "-tls1_3"):
        stage.run(
            "openssl", "s_client", "-connect", f"127.0.0.1:{stage.port}", version, "-servername",
            "other.test", "-ign_eof", stdin="GET / HTTP/1.0\r\n\r\n",
        )  # fmt: skip


def noise(stage: Stage) -> None:
    """random bytes in both directions, in pieces of many sizes | a script"""
    chance = random.Random(7)
    listener = socket.create_server(("127.0.0.1", stage.port))

    def echo() -> None:
        for _ in range(20):
            connection, _ = listener.accept()
            with connection:
                while received := connection.recv(1 << 16):
                    connection.sendall(chance.randbytes(len(received)))

    threading.Thread(target=echo, daemon=True).start()
    for _ in range(20):
        stage.talk(
            *(chance.randbytes(chance.choice([4, 14, 40, 400])) for _ in range(8)), pause=0.01
        )


def openflow(stage: Stage) -> None:
    """OpenFlow 1.3 and 1.5: features, ports, flows, statistics | Open vSwitch"""
    database, socket_of = str(stage.work / "conf.db"), f"unix:{stage.work}/db.sock"
    folders = {"OVS_RUNDIR": str(stage.work), "OVS_LOGDIR": str(stage.work)}
    stage.run("ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema")
    stage.background("ovsdb-server", database, f"--remote=p{socket_of}", **folders)
    stage.background("ovs-vswitchd", socket_of, "--enable-dummy", "--disable-system", **folders)
    controllers = {"OpenFlow13": "13", "OpenFlow15": "15"}
    stage.server("ovs-testcontroller", f"ptcp:{stage.port}", "-O", ",".join(controllers), **folders)
    control = ("ovs-vsctl", f"--db={socket_of}")
    for version, name in controllers.items():
        bridge = f"br{name}"
        stage.run(
            *control, "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=dummy",
            f"protocols={version}", "--", "set-controller", bridge,
            f"tcp:127.0.0.1:{stage.port}", **folders,
        )  # fmt: skip
    time.sleep(8)
    for name in controllers.values():
        stage.run(*control, "del-br", f"br{name}", **folders)


def fastcgi(stage: Stage) -> None:
    """FastCGI: parameters, input, output, an error | php-cgi, cgi-fcgi"""
    page = stage.file("page.php", '<?php echo str_repeat("word ", 300), getenv("QUERY_STRING");')
    stage.server("php-cgi", "-b", f"127.0.0.1:{stage.port}")
    for script in (page, page, "/none.php"):
        stage.run(
            "cgi-fcgi", "-bind", "-connect", f"127.0.0.1:{stage.port}", SCRIPT_FILENAME=script,
            REQUEST_METHOD="GET", QUERY_STRING="a=1", REDIRECT_STATUS="200",
        )  # fmt: skip


def axfr(stage: Stage) -> None:
    """DNS zone transfers: flags 0 and no additional section | named, dig"""
    lines = "".join(f"host-{number} A 192.0.2.{number}\n" for number in range(1, 200))
    soa = "$TTL 60\n@ SOA ns hostmaster 1 60 60 60 60\n@ NS ns\nns A 192.0.2.1\n"
    zone = stage.file("zone", soa + lines)
    conf = stage.file(
        "named.conf",
        f'options {{ directory "{stage.work}"; listen-on port {stage.port} {{ 127.0.0.1; }};'
        " listen-on-v6 { none; }; recursion no; allow-transfer { any; }; pid-file none; };"
        f' controls {{ }}; zone "kafka.test" {{ type primary; file "{zone}"; }};',
    )
    stage.server("named", "-g", "-c", conf)
    where = ("dig", "@127.0.0.1", "-p", str(stage.port), "+tcp", "+noedns", "+nocookie")
    for kind in ("AXFR", "IXFR=0", "SOA"):
        stage.run(*where, "+norecurse", "+noad", "kafka.test", kind)


def binary(stage: Stage) -> None:
    """short exchanges of binary protocols on their ports | scripts"""
    for port, messages in EXCHANGES.values():
        with socket.create_server(("127.0.0.1", port)) as listener:
            client = socket.create_connection(("127.0.0.1", port))
            server, _ = listener.accept()
            with client, server:
                for number, message in enumerate(messages):
                    (client, server)[number % 2].sendall(message)
                    time.sleep(0.01)


PORTS: dict[Callable[[Stage], None], int] = {
    http: 8080, http2: 8081, grpc: 50051, redis: 6379, postgresql: 5432, mysql: 3306, amqp: 5672,
    mqtt: 1883, nats: 4222, zookeeper: 2181, ssh: 2222, dns: 5353, tls: 4433, noise: 7777,
    openflow: 6653, fastcgi: 9000, axfr: 5300, binary: 0,
}  # fmt: skip
"""Port of each protocol; 0 for several."""


def record(speak: Callable[[Stage], None]) -> None:
    enter_new_network()
    name, port = speak.__name__, PORTS[speak]
    work = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    work.chmod(0o777)
    raw = work / "capture.pcap"
    select = f"tcp port {port}" if port else "tcp"
    log = work / "capture.txt"
    with Tool().capturing(raw, log, select), ExitStack() as stack:
        speak(Stage(work, port, stack))
    packets = captured(log)
    packed = pack(raw, ".zst", LARGEST)
    (CAPTURES / "other").mkdir(exist_ok=True)
    (CAPTURES / "other" / f"{name}.pcap.zst").write_bytes(packed)
    about, software = (speak.__doc__ or "").split(" | ")
    day = time.strftime("tcpdump, %Y-%m-%d", time.gmtime())
    put(TITLE, HEAD, name, f"| `{name}` | {about} | {software} | {day} | {packets} |\n")
    print(name, f"{packets} packets, {len(packed):,} bytes")
    shutil.rmtree(work)


if __name__ == "__main__":
    protocols = {speak.__name__: partial(record, speak) for speak in PORTS}
    sys.exit(main("tools.record.others", protocols))

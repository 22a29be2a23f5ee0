"""SASL with each mechanism, delegation tokens, TLS. All secrets are created here."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_3, KAFKA_4
from tools.record.kafka.cluster import Cluster, Node
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import recorded, scenario

MODULE = "org.apache.kafka.common.security"
PLAIN = f"{MODULE}.plain.PlainLoginModule required"
SCRAM = f"{MODULE}.scram.ScramLoginModule required"
OAUTH = f"{MODULE}.oauthbearer.OAuthBearerLoginModule required"
ALICE = 'username="alice" password="alice-secret"'
BROKER = 'username="broker" password="broker-secret"'
USERS = 'user_broker="broker-secret" user_alice="alice-secret"'

SASL = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": f"{PLAIN} {BROKER} {USERS};",
    "listener.name.clients.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
    "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    "listener.name.clients.oauthbearer.sasl.jaas.config": (
        f'{OAUTH} unsecuredLoginStringClaim_sub="broker";'
    ),
    "delegation.token.secret.key": "made-for-the-recording",
    # Sessions end while their clients talk, so that they authenticate again (KIP-368).
    "connections.max.reauth.ms": "4000",
}
JAAS = {
    "PLAIN": f"{PLAIN} {ALICE};",
    "SCRAM-SHA-256": f"{SCRAM} {ALICE};",
    "SCRAM-SHA-512": f"{SCRAM} {ALICE};",
    "OAUTHBEARER": f'{OAUTH} unsecuredLoginStringClaim_sub="alice";',
}


ONLY_PLAIN = {name: value for name, value in SASL.items() if "token" not in name} | {
    "sasl.enabled.mechanisms": "PLAIN",
    "auto.create.topics.enable": "true",
}


def secured(mechanism: str, jaas: str) -> list[str]:
    """The properties of a Java client that authenticates with a mechanism."""
    name, module = f"sasl.mechanism={mechanism}", f"sasl.jaas.config={jaas}"
    return ["security.protocol=SASL_PLAINTEXT", name, module]


@scenario
def kafka_4_sasl() -> None:
    java = artifacts.broker(KAFKA_4)  # OAUTHBEARER wants Jackson, which clients leave out
    about = (
        "SASL: PLAIN, SCRAM-SHA-256 and 512, OAUTHBEARER (unsigned), delegation tokens, "
        "reauthentication, a wrong password"
    )
    users = [
        part
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for part in ("--add-scram", f"{mechanism}=[name=alice,password=alice-secret]")
    ]
    settings = {**SASL, "auto.create.topics.enable": "true"}
    with recorded(
        "kafka-4-sasl", about, settings=settings, format_with=users, protocol="SASL_PLAINTEXT"
    ) as cluster:
        run = partial(cluster.java, classpath=java)
        produce = ("Produce", "safe", "5", "40")
        for mechanism, jaas in JAAS.items():
            run(*produce, *secured(mechanism, jaas), f"client.id=java-{mechanism}")
        plain = secured("PLAIN", JAAS["PLAIN"])
        run("Member", "safe", "reader", "9", *plain, "client.id=patient")
        output = run("Tokens", *secured("SCRAM-SHA-256", JAAS["SCRAM-SHA-256"]))
        token, key = re.findall(r"token (\S+) (\S+)", output)[-1]
        login = f'{SCRAM} username="{token}" password="{key}" tokenauth="true";'
        run(*produce, *secured("SCRAM-SHA-256", login), "client.id=java-token")
        cluster.python("sasl", "safe")


@scenario
def kafka_4_no_sasl() -> None:
    about = "clients with and without SASL; the broker's log of it"
    plain = secured("PLAIN", JAAS["PLAIN"])
    with recorded(
        "kafka-4-no-sasl", about, settings=ONLY_PLAIN, protocol="SASL_PLAINTEXT"
    ) as cluster:
        cluster.java("Produce", "safe", "5", "40", *plain)
        cluster.java("Member", "safe", "readers", "8", "client.id=reader", name="reader")


@scenario
def kafka_4_silent() -> None:
    old = artifacts.client("1.1.1")
    about = (
        "clients that fail without an error code, and their exceptions: groups without offsets and "
        "auto.offset.reset=none, and a client of 1.1.1 whose sessions end after 3 s (KIP-368)"
    )
    settings = ONLY_PLAIN | {"connections.max.reauth.ms": "3000"}
    plain = secured("PLAIN", JAAS["PLAIN"])
    with recorded("kafka-4-silent", about, settings=settings, protocol="SASL_PLAINTEXT") as cluster:
        paced = ("90", "40", "pause=150", "client.id=old", *plain)
        outputs = {"old": cluster.java("Produce", "safe", *paced, classpath=old)}
        for name, protocol in (("newcomer", "classic"), ("modern", "consumer")):
            named = (name, "5", f"client.id={name}", f"group.protocol={protocol}", *plain)
            outputs[name] = cluster.java("NoOffset", "safe", *named, name=name)
        for name, output in outputs.items():
            lines = [line for line in output.splitlines() if "Exception" in line]
            cluster.recording.note("failed", client_id=name, exceptions=len(lines), first=lines[0])


@scenario
def kafka_3_logins() -> None:
    """SASL tokens of old clients; secrets that a broker forwards, and fetches in a snapshot."""
    old = {release: artifacts.client(release) for release in ("0.10.2.2", "1.1.1")}
    about = (
        "logins of Java clients 0.10.2 (tokens without headers) and 1.1, with passwords and "
        "delegation tokens, good and bad ones; secrets that a broker forwards, and fetches in a "
        "snapshot"
    )
    settings = {
        **SASL,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connections.max.reauth.ms": "0",
        "connection.failed.authentication.delay.ms": "200",
        "metadata.log.max.snapshot.interval.ms": "2000",
        "metadata.max.retention.ms": "3000",
        "metadata.log.segment.ms": "2000",
        "replica.fetch.wait.max.ms": "2000",
    }
    nodes = [Node(1), Node(2, "broker")]
    with recorded(
        "kafka-3-logins", about, version=KAFKA_3, nodes=nodes, settings=settings,
        protocol="SASL_PLAINTEXT",
        format_with=["--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]"],
    ) as cluster:  # fmt: skip
        second = cluster.bootstrap.split(",")[1]
        cluster.java("Logins", *secured("PLAIN", JAAS["PLAIN"]), bootstrap=second)
        # Java 17 and SCRAM of 0.10.2 do not fit: only PLAIN.
        for release, classpath in old.items():
            for login, password in (("good", "alice-secret"), ("wrong", "not-the-secret")):
                jaas = JAAS["PLAIN"].replace("alice-secret", password)
                named = [*secured("PLAIN", jaas), f"client.id={release}-{login}"]
                given = ("safe", "2", "40", "max.block.ms=900", *named)
                cluster.java("Produce", *given, classpath=classpath, bootstrap=second)
        cluster.stop(2)
        shutil.rmtree(cluster.recording.work / "node-2" / "data")
        cluster.format(2)
        cluster.start(2)


def authority(work: Path, name: str = "broker", *options: str) -> tuple[Path, Path]:
    """A key store for the broker, and its certificate, for 127.0.0.1."""
    artifacts.require("keytool")
    store, certificate = work / f"{name}.p12", work / f"{name}.pem"
    keytool = ["keytool", "-keystore", str(store), "-storepass", "made-up", "-alias", "broker"]
    made = ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1"]
    given = options or ("-validity", "3650")
    subprocess.run([*keytool, *made, *given], check=True, capture_output=True)
    shown = ["-exportcert", "-rfc", "-file", str(certificate)]
    subprocess.run([*keytool, *shown], check=True, capture_output=True)
    return store, certificate


@scenario
def kafka_4_tls() -> None:
    """A client with TLS 1.3 and with 1.2; its secrets in a file, and in a pcapng secrets block."""
    artifacts.require("editcap")
    broker = artifacts.broker(KAFKA_4)
    about = "TLS 1.3, and 1.2 with GCM, ChaCha20 and CBC; keys in kafka-4-tls.keys.log"
    with Recording("kafka-4-tls", about) as recording:
        store, certificate = authority(recording.work)
        settings = {
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": "made-up",
            "ssl.keystore.type": "PKCS12",
            "ssl.truststore.location": str(certificate),
            "ssl.truststore.type": "PEM",
            "auto.create.topics.enable": "true",
        }
        keys = recording.attach("keys.log")
        source = recording.tap()
        recording.derive(
            source,
            "kafka-4-tls-secrets.pcapng",
            "kafka-4-tls with its keys in a Decryption Secrets Block",
            *("editcap", "--inject-secrets", f"tls,{keys}"),
        )
        with Cluster(recording, KAFKA_4, broker, settings=settings, protocol="SSL") as cluster:
            cluster.python("tls", "safe", str(certificate), str(keys))


@scenario
def kafka_4_handshakes() -> None:
    broker = artifacts.broker(KAFKA_4)
    about = (
        "TLS handshakes that fail, without keys: an expired certificate, no client certificate, no "
        "common version, TLS on one side only"
    )
    with Recording("kafka-4-handshakes", about) as recording:
        stores = {
            "broker": authority(recording.work),
            "expired": authority(
                recording.work, "expired", "-startdate", "-2y", "-validity", "365"
            ),
        }
        listeners = {"CLIENTS": 9092, "EXPIRED": 9093, "OLDER": 9094, "PLAIN": 9095}
        named = ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())
        settings = {
            "listeners": f"{named},CONTROLLERS://127.0.0.1:19092",
            "advertised.listeners": named,
            "listener.security.protocol.map": "CLIENTS:SSL,EXPIRED:SSL,OLDER:SSL,PLAIN:PLAINTEXT,"
            "CONTROLLERS:PLAINTEXT",
            "listener.name.clients.ssl.client.auth": "required",
            "listener.name.older.ssl.enabled.protocols": "TLSv1.2",
        }
        for name, kind in (("clients", "broker"), ("expired", "expired"), ("older", "broker")):
            store, certificate = stores[kind]
            settings |= {
                f"listener.name.{name}.ssl.{key}": value
                for key, value in {
                    "keystore.location": str(store),
                    "keystore.password": "made-up",
                    "keystore.type": "PKCS12",
                    "truststore.location": str(certificate),
                    "truststore.type": "PEM",
                }.items()
            }
        with Cluster(recording, KAFKA_4, broker, settings=settings, protocol="SSL") as cluster:
            trusted = [str(certificate) for _, certificate in stores.values()]
            command, _ = clients.in_python("handshakes")
            for line in recording.run("handshakes", [*command, *trusted]).splitlines():
                recording.note("handshake", **json.loads(line))
            secured = [
                "security.protocol=SSL", "ssl.truststore.type=PEM",
                f"ssl.truststore.location={trusted[0]}", "max.block.ms=900",
            ]  # fmt: skip
            given = ("Produce", "safe", "1", "40", *secured)
            cluster.java(*given, classpath=broker, bootstrap="127.0.0.1:9093")

"""Writes log segments of brokers, with the output of Kafka's own tool.

    python -m tools.record.kafka.segments

The file is tests/data/segments.tar.zst. It has a folder for each broker, and in it one for each
partition with its first segment and `dump.txt`, the output of DumpLogSegments of the broker's
release. All secrets were created for the segments.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import zstandard

from tools.record.kafka import artifacts
from tools.record.kafka.artifacts import KAFKA_3, KAFKA_4
from tools.record.kafka.cluster import JVM, Cluster
from tools.record.kafka.recording import Recording

TARGET = Path(__file__).parents[3] / "tests" / "data" / "segments.tar.zst"
TOOLS_API = f"org.apache.kafka:kafka-tools-api:{KAFKA_3}"
SEGMENT = "00000000000000000000.log"
BESIDE = ("00000000000000000000.index", "00000000000000000000.timeindex", "leader-epoch-checkpoint")
LARGEST = 1 << 16
SCRAM = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]")
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__share_group_state": "--share-group-state-decoder",
}


class Workshop(Recording):
    """A recording that stores only the log directories of brokers."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "")
        self.files: dict[str, bytes] = {}

    @property
    def tapped(self) -> bool:
        """No capture is needed."""
        return True

    def keep(self, tool: Sequence[str]) -> None:
        """Keep the partitions of the first node, which has stopped. `tool`: see `dumper`."""
        for folder in sorted((self.work / "node-1" / "data" / "0").glob("*-0")):
            if not (folder / SEGMENT).stat().st_size:
                continue
            for name in (SEGMENT, *BESIDE):
                # An index that was not closed in order has its 10 MB still.
                if (folder / name).exists() and (folder / name).stat().st_size < LARGEST:
                    self.files[f"{folder.name}/{name}"] = (folder / name).read_bytes()
            decoder = DECODERS.get(folder.name.rpartition("-")[0], "--deep-iteration")
            options = ["--print-data-log", decoder, "--files", str(folder / SEGMENT)]
            self.files[f"{folder.name}/dump.txt"] = artifacts.run([*tool, *options]).encode()

    def _finish(self) -> None:
        """Do not write captures: `keep` has read the files."""


def work(cluster: Cluster, java: str) -> None:
    """Records in each codec, a group, transactions, a secret among the configurations."""
    run = partial(cluster.java, classpath=java)
    run("Topics", "orders:1:1", "ledger:1:1")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        run("Produce", "orders", "20", "100", "linger.ms=50", f"compression.type={codec}")
    run("Member", "orders", "readers", "6")
    with suppress(RuntimeError):  # on a busy machine its last transaction ends as it should not
        run("Transactions", "ledger")
    run("SetConfig", "BROKER", "1", "plugin.token=plugin-secret", "log.cleaner.threads=2")


def dumper(release: str, broker: str) -> list[str]:
    """The command of DumpLogSegments; until 3.9, it is in the jar of the broker."""
    if release == KAFKA_4:
        return [*JVM, "-cp", artifacts.tools(), "org.apache.kafka.tools.DumpLogSegments"]
    return [*JVM, "-cp", f"{broker}:{artifacts.maven(TOOLS_API)}", "kafka.tools.DumpLogSegments"]


def disk(release: str) -> dict[str, bytes]:
    """The log directory of a broker, of 4 with groups of new types."""
    broker, java = artifacts.broker(release), artifacts.client(KAFKA_4)
    number = release.partition(".")[0]
    with Workshop(f"segments-{number}") as shop:
        with Cluster(shop, release, broker, format_with=SCRAM) as cluster:
            work(cluster, java)
            if release == KAFKA_4:
                cluster.java("Member", "orders", "new-readers", "6", "group.protocol=consumer")
                cluster.java("ShareMember", "orders", "sharers", "6", "sharer")
        shop.keep(dumper(release, broker))
    return {f"kafka-{number}/{name}": data for name, data in shop.files.items()}


def main() -> None:
    """Write the archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in sorted({**disk(KAFKA_3), **disk(KAFKA_4)}.items()):
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
            print(f"{len(data):>9,}  {name}")
    TARGET.write_bytes(zstandard.ZstdCompressor(level=19).compress(packed.getvalue()))
    print(f"{TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

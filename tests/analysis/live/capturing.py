"""Where the right to capture is missing, tests that need it are skipped, and say so."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest


def may_capture() -> bool:
    """Whether a network can be made, and be captured from."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    check = [sys.executable, "-S", "-c", "import socket; socket.socket(socket.AF_PACKET, 3, 0)"]
    done = subprocess.run(["unshare", "--net", *check], capture_output=True, check=False)
    return done.returncode == 0


needs_right = pytest.mark.skipif(
    not may_capture(),
    reason="needs iproute2, and the right to make a network and capture from it: run as root",
)

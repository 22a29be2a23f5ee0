"""A mark that skips tests without the privilege to capture."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest


def _may_capture() -> bool:
    """Whether this process can create a network and capture from it."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    check = [sys.executable, "-S", "-c", "import socket; socket.socket(socket.AF_PACKET, 3, 0)"]
    result = subprocess.run(["unshare", "--net", *check], capture_output=True, check=False)
    return result.returncode == 0


needs_privilege = pytest.mark.skipif(
    not _may_capture(),
    reason="needs iproute2 and the privilege to create a network and capture from it: run as root",
)

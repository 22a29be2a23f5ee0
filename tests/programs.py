"""Programs in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PRINT_PEAK: Final = "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
"""The last line of a program: print its peak of memory, in KiB."""


def printed(program: str, *arguments: object) -> str:
    """Run a program in Python; return its standard output."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout

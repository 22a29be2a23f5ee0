"""python -m tools.record SCENARIO...: record, one after the other."""

from __future__ import annotations

import sys

from tools.record.running import main
from tools.record.scenarios import SCENARIOS, mock, repeated, tansu

MODULES = (mock, repeated, tansu)
"""Importing them fills SCENARIOS."""

if __name__ == "__main__":
    sys.exit(main("tools.record", SCENARIOS))

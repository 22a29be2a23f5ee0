"""python -m captures.record SCENARIO...: record, one after the other."""

from __future__ import annotations

import sys

from captures.record.running import main
from captures.record.scenarios import SCENARIOS, mock, repeated, tansu

MODULES = (mock, repeated, tansu)
"""Importing them fills SCENARIOS."""

if __name__ == "__main__":
    sys.exit(main("captures.record", SCENARIOS))

"""python -m tools.record.kafka SCENARIO...: record, one after the other."""

from __future__ import annotations

import importlib
import pkgutil
import sys

from tools.record.kafka import scenarios
from tools.record.running import main

if __name__ == "__main__":
    for module in pkgutil.iter_modules(scenarios.__path__):  # which fills SCENARIOS
        importlib.import_module(f"{scenarios.__name__}.{module.name}")
    sys.exit(main("tools.record.kafka", scenarios.SCENARIOS))

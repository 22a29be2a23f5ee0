"""Messages and structures that other implementations encoded: see tests/data/README.md."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dissector import Message, decode_request, decode_response


def vectors(kind: str) -> list[dict[str, Any]]:
    """The vectors of a file."""
    path = Path(__file__).parent / "data" / f"{kind}_vectors.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def decoded(vector: dict[str, Any]) -> Message:
    """The message of a vector."""
    frame = bytes.fromhex(vector["frame"])
    if vector["direction"] == "request":
        return decode_request(frame)
    return decode_response(frame, vector["api_key"], vector["version"])


def plain(value: Any, rename: Callable[[str], str] = str) -> Any:
    """A body in the notation of the vectors; `rename`: from a name of a field to that there."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {rename(name): plain(each, rename) for name, each in value.items()}
    return [plain(each, rename) for each in value] if isinstance(value, list) else value

"""Writes a table of the APIs and versions in the captures.

    python -m tools.record.kafka.coverage

The table is at the end of captures/README.md. For each API and version, it has the capture with
most answered requests, and the number of captures. Only answered requests that could be decoded
count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from dissector.capture import open_capture
from dissector.protocol.registry import apis, versions
from tools.record.ledger import CAPTURES, README

TITLE = "\n## API versions in captures\n"
ABOUT = """
Written by `python -m tools.record.kafka.coverage` from the captures: for each version with
responses, the capture with most of them and the number of captures. {seen} of {known} versions of
{apis} APIs.

| API | versions in no capture | version, capture, number of captures |
|---|---|---|
"""

Seen = dict[tuple[int, int], Counter[str]]


def captures() -> list[Path]:
    return sorted(path for path in CAPTURES.iterdir() if ".pcap" in path.name)


def seen() -> Seen:
    """Number of answered requests in each capture, by API key and version."""
    counts_by_version: Seen = defaultdict(Counter)
    for path in captures():
        table = open_capture(path).tables(["exchanges"])["exchanges"]
        columns = (table[name].to_pylist() for name in ("api_key", "api_version", "status"))
        for api_key, version, status in zip(*columns, strict=True):
            if status == "answered" and api_key in apis():
                counts_by_version[api_key, version][path.name.partition(".pcap")[0]] += 1
    return counts_by_version


def table(counts_by_version: Seen) -> str:
    """The section of the README."""
    rows = []
    for api_key, api in apis().items():
        cells = []
        for version in versions(api_key):
            if counts := counts_by_version.get((api_key, version)):
                most = max(sorted(counts), key=counts.__getitem__)
                cells.append(f"{version} `{most}` {len(counts)}")
        missing = [str(v) for v in versions(api_key) if (api_key, v) not in counts_by_version]
        rows.append(f"| {api_key} {api} | {', '.join(missing)} | {'; '.join(cells)} |\n")
    known = sum(len(versions(api_key)) for api_key in apis())
    about = ABOUT.format(seen=len(counts_by_version), known=known, apis=len(apis()))
    return TITLE + about + "".join(rows)


def main() -> None:
    """Write the table."""
    before, _, _ = README.read_text().partition(TITLE)
    README.write_text(before + table(seen()))


if __name__ == "__main__":
    main()

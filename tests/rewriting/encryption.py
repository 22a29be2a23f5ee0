"""A recording in TLS: the same bytes, which OpenSSL encrypts in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.dissector.tls.tls_made import contexts, talk
from tests.rewriting.flows import Chunk, Recording


def encrypted(whole: Recording, folder: Path, version: str) -> tuple[Recording, Path]:
    """The recording with a TLS session in each flow, and the key log.

    `version`: an attribute of `ssl.TLSVersion`. A handshake has the time of the first chunk behind
    it; a chunk is one TLS record, or several if it is long.
    """
    both = contexts(folder, version)
    flows, chunks = [], []
    for number, flow in enumerate(whole.flows):
        plain = [each for each in whole.chunks if each.flow == number]
        made = talk(folder, both, [(each.end, each.data) for each in plain])
        handshake = len(made.wire) - len(plain)
        sizes = [0, 0]
        for index, (end, data) in enumerate(made.wire):
            time = plain[max(index - handshake, 0)].time if plain else flow.first_time
            chunks.append(Chunk(number, end, sizes[end], data, time, sizes[1 - end]))
            sizes[end] += len(data)
        flows.append(replace(flow, has_syn=True, sizes=sizes))
    chunks.sort(key=lambda each: each.time)
    return Recording(whole.name, flows, chunks), folder / "keys.log"

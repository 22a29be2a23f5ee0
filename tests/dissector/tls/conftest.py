"""Connections made by OpenSSL, for several modules."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.dissector.tls.tls_made import Dialogue


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module", params=["1.3", "1.2", "cbc"])
def made(request, folder) -> Dialogue:
    from tests.dissector.tls.tls_made import contexts, talk  # cryptography may be missing

    version = "TLSv1_3" if request.param == "1.3" else "TLSv1_2"
    cipher = "ECDHE-RSA-AES128-SHA256" if request.param == "cbc" else ""
    rng = random.Random(3)
    messages = [(end, rng.randbytes(rng.randrange(1, 900))) for _ in range(40) for end in (0, 1)]
    return talk(folder, contexts(folder, version, cipher), messages)

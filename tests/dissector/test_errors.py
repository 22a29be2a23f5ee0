"""Errors keep their attributes in other processes."""

from __future__ import annotations

import pickle

import pytest

from dissector.errors import (
    CaptureError,
    DecodeError,
    DefinitionError,
    DissectorError,
    TooManyElements,
    UnknownVersion,
)


@pytest.mark.parametrize(
    "error",
    [
        DissectorError("no table x"),
        CaptureError("x.pcap is empty"),
        DecodeError("2 bytes are needed", offset=7, path="topics[2].name"),
        UnknownVersion("unknown version 99", offset=2),
        TooManyElements("too many elements", offset=9, path="topics"),
        DefinitionError("a field has no type", page="Fetch.txt", line=3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_pickled(error: DissectorError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)

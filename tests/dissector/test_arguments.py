"""Arguments of users: what is a number, and what is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dissector import arguments
from dissector.errors import DissectorError


@pytest.mark.parametrize("given", [0, 5, np.int8(3), np.uint64(7)])
def test_integers(given: Any) -> None:
    value = arguments.integer("top", given, 0)
    assert type(value) is int
    assert value == given


@pytest.mark.parametrize("given", [-1, 2**63, True, np.bool_(True), 1.0, "1", b"1", None, [1]])
def test_no_integers(given: Any) -> None:
    with pytest.raises(DissectorError) as raised:
        arguments.integer("top", given, 0)
    assert str(raised.value) == f"top must be an integer of at least 0, not {given!r}"


@pytest.mark.parametrize("given", [0, 0.5, 1, np.float32(0.25), Fraction(1, 4)])
def test_numbers(given: Any) -> None:
    value = arguments.number("share", given, 0, 1)
    assert type(value) is float
    assert value == given


@pytest.mark.parametrize(
    "given", [-0.1, 1.5, math.nan, math.inf, True, "0.5", None, Decimal("NaN"), 1j]
)
def test_no_numbers(given: Any) -> None:
    with pytest.raises(DissectorError) as raised:
        arguments.number("share", given, 0, 1)
    assert str(raised.value) == f"share must be a number from 0 to 1, not {given!r}"


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (
            lambda: arguments.integers("ports", "9092"),
            "ports must be a list of integers, not '9092'",
        ),
        (lambda: arguments.integers("ports", 9092), "ports must be a list of integers, not 9092"),
        (lambda: arguments.text("key", b"a"), "key must be a text, not b'a'"),
        (
            lambda: arguments.choice("show", "lst", ("last", "all")),
            "show='lst' is not one of last, all. Did you mean last?",
        ),
        (lambda: arguments.path("output", None), "output must be a path, not None"),
        (lambda: arguments.path("output", b"a"), "output must be a path, not b'a'"),
        (lambda: arguments.path("output", "a\0"), "output must be a path, not 'a\\x00'"),
        (lambda: arguments.path("output", "\ud800"), "output must be a path, not '\\ud800'"),
        (
            lambda: arguments.paths("paths", ["a", "b\0"]),
            "paths must be a path or several, not ['a', 'b\\x00']",
        ),
        (lambda: arguments.buffer("frame", 3), "frame must be bytes, not 3"),
        (lambda: arguments.buffer("frame", "ab"), "frame must be bytes, not 'ab'"),
        (
            lambda: arguments.text("key", np.zeros((2, 1), int)),
            "key must be a text, not array([[0], [0]])",
        ),
        (lambda: arguments.text("key", [1] * 99), f"key must be a text, not [{'1, ' * 31}1, ..."),
    ],
)
def test_errors_name_the_argument_and_its_value(check: Callable[[], object], text: str) -> None:
    with pytest.raises(DissectorError) as raised:
        check()
    assert str(raised.value) == text


@pytest.mark.parametrize("given", [True, False, np.True_, np.False_])
def test_booleans(given: Any) -> None:
    value = arguments.boolean("hold", given)
    assert type(value) is bool
    assert value == given


@pytest.mark.parametrize("given", [0, 1, None, "true", pd.NA, [True], np.ones(1, bool)])
def test_no_booleans(given: Any) -> None:
    with pytest.raises(DissectorError) as raised:
        arguments.boolean("hold", given)
    assert str(raised.value) == f"hold must be True or False, not {given!r}"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("file:///no/a%20b.pcap", "/no/a b.pcap"),
        ("file:/no/%C3%BC/*.pcap", "/no/ü/*.pcap"),
        ("file://localhost/no/a%2525", "/no/a%25"),
        ("/no/a%20b.pcap", "/no/a%20b.pcap"),
        ("file:a%20b", "file:a%20b"),
        ("s3://bucket/a%20b", "s3://bucket/a%20b"),
        ("-", "-"),
    ],
)
def test_uris_of_files_are_paths(given: str, path: str) -> None:
    assert arguments.paths("paths", given) == [path]


def test_a_name_in_a_uri_may_be_without_percent_encoding(tmp_path: Path) -> None:
    (tmp_path / "a%20b").touch()
    assert arguments.local_path(f"file://{tmp_path}/a%20b") == str(tmp_path / "a%20b")
    assert arguments.local_path((tmp_path / "a%20b").as_uri()) == str(tmp_path / "a%20b")


def test_a_path_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert arguments.paths("paths", ["~/a.pcap", "a~"]) == [f"{tmp_path}/a.pcap", "a~"]
    assert arguments.path("keylog", "~/keys.log") == f"{tmp_path}/keys.log"
    (tmp_path / "~").touch()
    assert arguments.local_path("~") == "~"


@pytest.mark.parametrize("given", [b"ab", bytearray(b"ab"), np.frombuffer(b"ab", np.uint8)])
def test_buffers(given: Any) -> None:
    assert arguments.buffer("frame", given) == b"ab"

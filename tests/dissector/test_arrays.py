"""The decorators of classes."""

from __future__ import annotations

import pickle
from dataclasses import field, replace

from dissector.arrays import arrays, mutable, value


@value
class Place:
    name: str
    size: int = 0
    comment: str = field(default="", compare=False, repr=False)


@value
class Other:
    name: str
    size: int = 0


@value
class Keyed:
    key: int
    name: str

    def __hash__(self) -> int:
        return self.key


@arrays
class Columns:
    time: list[int]


@mutable
class Counter:
    count: int = 0


def test_values_are_compared_by_their_attributes() -> None:
    assert Place("a", 1, "x") == Place("a", 1, "y")
    assert Place("a", 1) != Place("a", 2)
    others: list[object] = [Other("a"), ("a", 0)]
    assert Place("a") not in others
    assert {Place("a", 1), Place("a", 1, "y"), Place("b", 1)} == {Place("a", 1), Place("b", 1)}


def test_a_value_has_a_text_and_can_be_copied() -> None:
    assert repr(Place("a", 1, "x")) == "Place(name='a', size=1)"
    assert replace(Place("a", 1), size=2) == Place("a", 2)
    assert pickle.loads(pickle.dumps(Place("a", 1))) == Place("a", 1)


def test_a_value_keeps_its_own_methods() -> None:
    assert hash(Keyed(7, "a")) == 7
    assert Keyed(7, "a") != Keyed(7, "b")


def test_others_are_compared_by_identity() -> None:
    assert Columns([1]) != Columns([1])
    counter = Counter()
    counter.count += 1
    assert counter.count == 1
    assert counter != Counter(1)

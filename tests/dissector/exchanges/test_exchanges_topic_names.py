"""Topic names that are known after their ids were used."""

from __future__ import annotations

import pyarrow as pa

from dissector.exchanges.topic_names import TopicNames

ID = bytes(range(16))
TEXT = "AAECAwQFBgcICQoLDA0ODw"


def late() -> TopicNames:
    """Names, one of which is known after its id was resolved."""
    names = TopicNames()
    assert names.resolve(pa.array([ID], pa.binary(16))).to_pylist() == [TEXT]
    names.names[TEXT] = "orders"
    return names


def test_a_late_name_replaces_its_id() -> None:
    assert late().replace_ids(pa.array(["other", TEXT, None])).to_pylist() == [
        "other",
        "orders",
        None,
    ]


def test_a_list_contains_a_late_name_once() -> None:
    lists = pa.array([["orders", TEXT, "other"], None, [], [TEXT, None, "orders"], ["other"]])
    assert late().replace_ids(lists).to_pylist() == [
        ["orders", "other"], None, [], ["orders", None], ["other"]
    ]  # fmt: skip


def test_a_slice_of_lists() -> None:
    lists = pa.array([["a"], [TEXT], None, ["orders", TEXT], []])
    expected = [["a"], ["orders"], None, ["orders"], []]
    for begin, end in ((0, 3), (1, 4), (2, 5)):
        assert late().replace_ids(lists[begin:end]).to_pylist() == expected[begin:end]

"""States of streams: the table of transitions. No other module changes a state."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dissector import streams as package
from dissector.streams.connections import state as events
from dissector.streams.connections.state import (
    ALIGNED,
    BEGUN,
    BROKEN,
    CLOSED,
    FOUND,
    HEAD_LOST,
    IS_KAFKA,
    IS_OTHER,
    IS_TLS,
    JOINED,
    TRANSITIONS,
    States,
)
from dissector.streams.connections.table import (
    ENCRYPTED,
    FRAMED,
    HEAD,
    IGNORED,
    KAFKA,
    NEW,
    OTHER,
    RESUMED,
    SEARCHING,
    TLS,
    UNDECIDED,
    ConnectionTable,
    StreamTable,
)

ALL = NEW, HEAD, SEARCHING, FRAMED, RESUMED, ENCRYPTED, IGNORED


@pytest.fixture
def tables() -> tuple[ConnectionTable, StreamTable, States]:
    connections, streams = ConnectionTable(), StreamTable()
    connections.add(4)
    streams.add(4)
    return connections, streams, States(connections, streams)


@pytest.mark.parametrize(
    ("sequence", "last"),
    [
        ([BEGUN, IS_KAFKA], FRAMED),
        ([BEGUN, IS_TLS, CLOSED], IGNORED),
        ([BEGUN, IS_OTHER], IGNORED),
        ([BEGUN, HEAD_LOST], SEARCHING),
        ([BEGUN, HEAD_LOST, FOUND], RESUMED),
        ([JOINED, FOUND, ALIGNED], FRAMED),
        ([JOINED, FOUND, BROKEN, FOUND], RESUMED),
        ([BEGUN, IS_KAFKA, BROKEN, FOUND, ALIGNED, FOUND], RESUMED),
        ([JOINED, IS_TLS], ENCRYPTED),
    ],
)
def test_the_life_of_a_stream(tables, sequence, last):
    _, streams, states = tables
    for event in sequence:
        states.advance(np.array([3]), event)
    assert streams.state.tolist()[:8] == [NEW] * 3 + [last] + [NEW] * 4


def test_an_ignored_stream_stays_ignored():
    assert all(TRANSITIONS[event][IGNORED] == events.STAY for event in TRANSITIONS)


def test_every_state_can_be_reached_from_a_new_stream():
    reached = {NEW}
    for _ in ALL:
        reached |= {TRANSITIONS[event][state] for event, state in product(TRANSITIONS, reached)}
        reached.discard(events.STAY)
    assert reached == set(ALL)


@pytest.mark.parametrize(
    ("protocol", "state"), [(KAFKA, FRAMED), (TLS, ENCRYPTED), (OTHER, IGNORED)]
)
def test_both_streams_follow_a_decision_whenever_they_begin(tables, protocol, state):
    connections, streams, states = tables
    states.begin(np.array([2]), np.array([True]))
    assert streams.state[2:4].tolist() == [HEAD, NEW]
    states.decide(np.array([1]), protocol)
    assert streams.state[2:4].tolist() == [state, NEW]
    states.begin(np.array([3]), np.array([True]))
    assert streams.state[2:4].tolist() == [state, state]
    assert connections.protocol[:4].tolist() == [UNDECIDED, protocol, UNDECIDED, UNDECIDED]


def test_decrypted_streams_have_their_own_state(tables):
    connections, streams, states = tables
    states.begin(np.array([0, 1]), np.array([True, True]))
    states.decide(np.array([0]), TLS)
    decrypted = StreamTable()
    decrypted.add(4)
    inner = States(connections, decrypted)
    inner.begin(np.array([0, 1]), np.array([True, False]))
    inner.decide(np.array([0]), KAFKA)
    assert streams.state[:2].tolist() == [ENCRYPTED, ENCRYPTED]
    assert decrypted.state[:2].tolist() == [FRAMED, SEARCHING]
    assert (streams.protocol[0], decrypted.protocol[0]) == (TLS, KAFKA)
    assert connections.protocol[0] == KAFKA


def assigned(tree: ast.AST) -> set[str]:
    """Names of the columns that a module assigns, by attribute or by `flat`."""
    names = set()
    for node in ast.walk(tree):
        targets = [node.target] if isinstance(node, ast.AugAssign) else getattr(node, "targets", [])
        for target in targets if isinstance(node, ast.Assign | ast.AugAssign) else []:
            inner = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(inner, ast.Call) and inner.args:
                names.add(getattr(inner.args[0], "value", ""))
            if isinstance(inner, ast.Attribute) and isinstance(target, ast.Subscript):
                names.add(inner.attr)
    return names


def test_no_other_module_changes_a_state():
    folder = Path(package.__file__).parent
    writers = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if assigned(ast.parse(path.read_text())) & {"state", "protocol"}
    }
    assert writers == {"connections/state.py"}

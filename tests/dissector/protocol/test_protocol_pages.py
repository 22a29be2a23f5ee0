"""Each definition page parses, and agrees with known facts of the protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dissector.errors import UnknownVersion
from dissector.protocol.notation import Direction, Field
from dissector.protocol.registry import (
    all_structures,
    api_name,
    apis,
    error_codes,
    error_name,
    is_retriable,
    layout,
    versions,
)
from dissector.protocol.roles import ROLES

REQUEST, RESPONSE = Direction.REQUEST, Direction.RESPONSE


def all_fields(fields: tuple[Field, ...]) -> Iterator[Field]:
    for each in fields:
        yield each
        yield from all_fields(each.fields)


def test_api_names() -> None:
    assert list(apis()) == list(range(len(apis())))
    assert (api_name(0), api_name(18), api_name(60)) == (
        "Produce",
        "ApiVersions",
        "DescribeCluster",
    )
    assert api_name(-1) is None
    assert api_name(32767) is None


@pytest.mark.parametrize("key", apis())
def test_every_layout(key: int) -> None:
    assert versions(key)[0] == 0
    for direction in Direction:
        for version in versions(key):
            actual = layout(key, direction, version)
            assert (actual.api_key, actual.direction, actual.version) == (key, direction, version)
            for each in all_fields(actual.fields):
                # A count is checked against the bytes left: an element must take one or more.
                assert each.type != "struct" or actual.flexible or each.fields
                assert set(each.roles) <= set(ROLES)


def test_every_role_is_used() -> None:
    used = {
        role
        for key in apis()
        for direction in Direction
        for version in versions(key)
        for each in all_fields(layout(key, direction, version).fields)
        for role in each.roles
    } | {
        role
        for structure in all_structures().values()
        for version in structure.versions
        for each in all_fields(structure.layout(version).fields)
        for role in each.roles
    }
    assert used == set(ROLES)


def test_every_error_code_has_its_role() -> None:
    for key in apis():
        for version in versions(key):
            for each in all_fields(layout(key, RESPONSE, version).fields):
                if each.name.endswith("error_code"):
                    assert each.roles == ("error_code",), apis()[key]


@pytest.mark.parametrize(
    ("key", "direction", "version", "header"),
    [
        (0, REQUEST, 0, 1),
        (0, REQUEST, 9, 2),
        (0, RESPONSE, 8, 0),
        (0, RESPONSE, 9, 1),
        (7, REQUEST, 0, 0),  # ControlledShutdown 0 is older than the client id
        (7, REQUEST, 1, 1),
        (7, REQUEST, 3, 2),
        (17, REQUEST, 1, 1),  # SaslHandshake was never made flexible
        (17, RESPONSE, 1, 0),
        (18, REQUEST, 3, 2),
        (18, RESPONSE, 0, 0),  # ApiVersions: a client must be able to read it before it knows
        (18, RESPONSE, 4, 0),
    ],
)
def test_header_versions(key: int, direction: Direction, version: int, header: int) -> None:
    assert layout(key, direction, version).header_version == header


def test_a_version_that_is_not_known() -> None:
    newest = versions(0)[-1]
    with pytest.raises(UnknownVersion, match=rf"version 99 of Produce .*: {newest}\)"):
        layout(0, REQUEST, 99)
    with pytest.raises(UnknownVersion, match=rf"unknown API key 999 .*: {len(apis()) - 1}\)"):
        layout(999, REQUEST, 0)
    with pytest.raises(UnknownVersion):
        versions(999)
    with pytest.raises(UnknownVersion):
        layout(0, REQUEST, -1)


def test_error_codes() -> None:
    assert (error_name(0), is_retriable(0)) == ("NONE", False)
    assert (error_name(6), is_retriable(6)) == ("NOT_LEADER_OR_FOLLOWER", True)
    assert (error_name(-1), is_retriable(-1)) == ("UNKNOWN_SERVER_ERROR", False)
    assert (error_name(9999), is_retriable(9999)) == (None, None)
    assert all(code == each.code for code, each in error_codes().items())

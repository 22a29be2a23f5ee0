"""The definition pages agree with the schemas in the newest kafka-clients jar."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from dissector.protocol import registry
from tests.dissector.protocol.kafka_schemas import (
    differences,
    removed_in,
    throttle_version,
    version_range,
)
from tests.dissector.protocol.kafka_schemas import load as load_schemas
from tools.record.kafka import artifacts

Schemas = dict[str, dict[str, Any]]

NOT_IN_COMMENTS = {"Produce": 6}
"""First version in which the client throttles itself, where the schema does not mention it."""


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Schemas:
    """The schemas of the newest release. A release newer than the pages may differ from them."""
    try:
        jar = artifacts.newest_client(tmp_path_factory.mktemp("jar"))
    except artifacts.MissingToolError as error:
        pytest.skip(str(error))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        reason = next((line for line in str(error).splitlines() if "ERROR" in line), str(error))
        pytest.skip(f"Maven cannot fetch the newest kafka-clients: {reason}")
    schemas = load_schemas(jar)
    if jar.name != f"kafka-clients-{artifacts.KAFKA_4}.jar" and (lines := differences(schemas)):
        pytest.xfail("\n".join([f"{jar.stem} is newer than the pages:", *lines]))
    return schemas


def test_pages_agree_with_the_schemas(schemas: Schemas) -> None:
    assert len(schemas) > 2 * len(registry.apis())
    lines = differences(schemas)
    assert not lines, "\n" + "\n".join(lines)


def test_facts_agree_with_the_schemas(schemas: Schemas) -> None:
    for api in registry.all_apis():
        schema = schemas[f"{api.name}Response"]
        valid = version_range(schema["validVersions"], api.versions[-1])
        assert api.kept_since == (valid[0] if valid else None), api.name
        assert removed_in(schema) == (api.removal.release if api.removal else None), api.name
        throttles = NOT_IN_COMMENTS.get(api.name, throttle_version(schema))
        assert api.client_throttles[0] == throttles, api.name


SCHEMA: dict[str, Any] = {
    "apiKey": 12,
    "type": "response",
    "name": "HeartbeatResponse",
    "validVersions": "0-5",
    "flexibleVersions": "4+",
    "fields": [
        {"name": "ThrottleTimeMs", "type": "int32", "versions": "1+"},
        {"name": "ErrorCode", "type": "int16", "versions": "0+"},
    ],
}


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({"validVersions": "0-4"}, []),
        ({}, ["MISSING HeartbeatResponse v5: the version, no new fields"]),
        (
            {"validVersions": "1-4", "fields": SCHEMA["fields"][1:]},
            ["SURPLUS HeartbeatResponse v1-4: fields throttle_time_ms"],
        ),
        (
            {
                "fields": [
                    SCHEMA["fields"][0] | {"type": "int64"},
                    SCHEMA["fields"][1],
                    {"name": "MemberEpoch", "type": "int32", "versions": "3+"},
                ]
            },
            [
                "DIFFERENT HeartbeatResponse v1-4: fields throttle_time_ms",
                "MISSING HeartbeatResponse v3-4: fields member_epoch",
                "MISSING HeartbeatResponse v5: the version, new fields member_epoch",
            ],
        ),
        (
            {"validVersions": "0-4", "fields": SCHEMA["fields"][::-1]},
            ["DIFFERENT HeartbeatResponse v1-4: order of the fields"],
        ),
        (
            {"validVersions": "0-4", "flexibleVersions": "3+"},
            ["DIFFERENT HeartbeatResponse v3: flexible"],
        ),
        ({"apiKey": 999}, ["MISSING HeartbeatResponse: the API, with key 999"]),
    ],
)
def test_differences_are_reported(change: dict[str, Any], lines: list[str]) -> None:
    assert differences({"HeartbeatResponse": SCHEMA | change}) == lines

"""The definition pages as Lua tables."""

from __future__ import annotations

from analysis.wireshark.definitions import ROLES, definitions, field_prefix, lua_api
from analysis.wireshark.plugin import plugin
from dissector.protocol import registry
from dissector.protocol.parser import parse_page

PAGE = """api 7 MadeUp   versions 0-3   flexible 2+

request   header 0   0
  topics        []?1+
    topic       string  0-1  @topic
    ids         [int32]

response
  error_code    int16             @error_code
  token         bytes?   3+ tag 0 @secret @sasl_token
  data          records           @records @secret
"""


def test_a_page_as_a_table() -> None:
    assert (
        "\n".join(lua_api(parse_page(PAGE, "07_MadeUp.txt")))
        == """\
    [7] = {name = "MadeUp", field = "made_up",
        first = 0, last = 3,
        flexible = {2, 3},
        request_header = {0, 0, 0},
        request = {
            {"topics", "struct", 0, 3, array = true, null = {1, 3},
                {"topic", "string", 0, 1, role = "topic"},
                {"ids", "int32", 0, 3, array = true},
            },
        },
        response = {
            {"error_code", "int16", 0, 3, role = "error_code"},
            {"token", "bytes", 3, 3, null = {3, 3}, tag = 0, role = "secret"},
            {"data", "records", 0, 3, role = "secret"},
        },
    },"""
    )


def test_secret_records_are_secrets() -> None:
    page = PAGE.replace("@secret @sasl_token", "@secret @records")
    assert '0, role = "secret"},' in "\n".join(lua_api(parse_page(page, "07_MadeUp.txt")))
    assert all(line.count("role = ") <= 1 for line in definitions().splitlines())


def test_a_field_has_one_role_besides_secret() -> None:
    lines = [
        line for key in registry.apis() for s in registry.page(key).sections for line in s.lines
    ]
    for line in lines:
        lines += line.lines
        assert len({*ROLES}.intersection(line.roles) - {"secret"}) <= 1, line.name


def test_prefixes_of_fields() -> None:
    assert field_prefix("Fetch") == "fetch"
    assert field_prefix("OffsetForLeaderEpoch") == "offset_for_leader_epoch"
    assert field_prefix("SaslAuthenticate") == "sasl_authenticate"


def test_the_file_has_all_apis_and_error_codes() -> None:
    text = plugin("1.2.3")
    assert text.startswith("-- Kafka for Wireshark")
    assert "1.2.3" in text
    assert definitions() in text
    for key, name in registry.apis().items():
        assert f'    [{key}] = {{name = "{name}", ' in text
    for code, error in registry.error_codes().items():
        assert f'    [{code}] = "{error.name}",' in text

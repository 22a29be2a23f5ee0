"""The notation of pages: its meaning, and errors for other text."""

from __future__ import annotations

import pytest

from dissector.errors import DefinitionError
from dissector.protocol.notation import Api, Direction, Field, Removal
from dissector.protocol.parser import parse_api, parse_page, parse_structures

PAGE = """\
api 7 Example   versions 0-5   flexible 3+
# 3: what the version brought

request   header 0   0
  topics          []?1+           # null is all topics
    name          string   0-3    @topic
    topic_id      uuid     4+     @topic_id
    partitions    [int32]         @partition
  owner           {}?      2+
    id            int32
  rack            string?  5  tag 1
  cluster_id      string?  3+  tag 0

response   header 0
  error_code      int16           @error_code
  host            string   0-2    @coordinator_key @group_id
  host            bytes    3+
"""


def layout(direction: Direction, version: int) -> tuple[Field, ...]:
    return parse_page(PAGE, "example").layout(direction, version).fields


def test_a_field_is_there_in_its_versions_only() -> None:
    topics = layout(Direction.REQUEST, 3)[0]
    assert [each.name for each in topics.fields] == ["name", "partitions"]
    topics = layout(Direction.REQUEST, 4)[0]
    assert [each.name for each in topics.fields] == ["topic_id", "partitions"]
    assert [each.name for each in layout(Direction.REQUEST, 0)] == ["topics"]


def test_types() -> None:
    topics, owner, cluster_id, rack = layout(Direction.REQUEST, 5)
    assert (topics.type, topics.is_array, topics.nullable) == ("struct", True, True)
    assert topics.fields[1] == Field("partitions", "int32", True, roles=("partition",))
    assert owner == Field("owner", "struct", nullable=True, fields=(Field("id", "int32"),))
    assert (cluster_id.type, cluster_id.nullable) == ("string", True)
    assert (rack.tag, cluster_id.tag) == (1, 0)


def test_null_from_a_version_on() -> None:
    assert [layout(Direction.REQUEST, version)[0].nullable for version in range(3)] == [
        False,
        True,
        True,
    ]


def test_tagged_fields_come_last_in_order_of_tag() -> None:
    names = [each.name for each in layout(Direction.REQUEST, 5)]
    assert names == ["topics", "owner", "cluster_id", "rack"]


def test_two_lines_for_one_name() -> None:
    assert layout(Direction.RESPONSE, 2)[1].roles == ("coordinator_key", "group_id")
    assert layout(Direction.RESPONSE, 3)[1].type == "bytes"


def test_headers() -> None:
    page = parse_page(PAGE, "example")
    headers = [page.layout(Direction.REQUEST, version).header_version for version in range(6)]
    assert headers == [0, 1, 1, 2, 2, 2]
    headers = [page.layout(Direction.RESPONSE, version).header_version for version in range(6)]
    assert headers == [0, 0, 0, 0, 0, 0]


def test_an_api_without_facts() -> None:
    api = parse_api(PAGE, "example")
    assert api == Api(7, "Example", range(6), range(3, 6), client_throttles=range(6))
    assert api == parse_page(PAGE, "example").api
    assert api.kept_since == 0


FACTS = """\
api 1 A   versions 2-5   flexible 4+
removed 2-3 in 4.0: cannot do this   # KIP-896
group barrier
# 3: what the version brought
client throttles 3+
long poll

request
response
"""


def test_facts_about_an_api() -> None:
    api = parse_page(FACTS, "facts").api
    assert api == parse_api(FACTS, "facts")
    assert api.client_throttles == range(3, 6)
    assert api.removal == Removal(range(2, 4), "4.0", "cannot do this")
    assert api.kept_since == 4
    assert api.is_group_barrier
    assert api.is_long_poll


def test_all_versions_removed() -> None:
    assert parse_api(FACTS.replace("removed 2-3", "removed 2-5"), "facts").kept_since is None


def test_never_flexible() -> None:
    page = parse_page("api 1 A versions 0-1 flexible none\nrequest\nresponse\n", "a")
    assert not page.layout(Direction.REQUEST, 1).flexible
    assert page.layout(Direction.REQUEST, 1).fields == ()


def test_structures() -> None:
    text = (
        "# several to a page\nstructure A versions 0-1 flexible 1+ type 3\n  a int8\n  b uuid 1\n"
    )
    text += "structure B versions 2 flexible none type 1-2\n"
    first, second = parse_structures(text, "structures")
    assert (first.name, first.versions, first.types) == ("A", range(2), range(3, 4))
    assert [each.name for each in first.layout(1).fields] == ["a", "b"]
    assert (first.layout(0).flexible, first.layout(1).flexible) == (False, True)
    assert (second.versions, second.types) == (range(2, 3), range(1, 3))
    assert second.layout(2).fields == ()


FACTS_HEADER = "api 1 A versions 2-5 flexible 4+\n"
HEADER = FACTS_HEADER + "request\n"

MALFORMED = [
    ("", 1, "expected: api KEY"),
    ("apis 1 A versions 0-1 flexible none", 1, "expected: api KEY"),
    ("  api 1 A versions 0-1 flexible none", 1, "expected: api KEY"),
    ("api one A versions 0-1 flexible none", 1, "expected: api KEY"),
    ("api 1 A versions 0-1", 1, "expected: api KEY"),
    ("api 1 A versions 0+ flexible none", 1, "expected A or A-B in a header line"),
    ("api 1 A versions x flexible none", 1, "expected A or A-B in a header line"),
    ("api 1 A versions 3-2 flexible none", 1, "are not inside"),
    ("api 1 A versions 0-2 flexible 3+", 1, "are not inside"),
    ("api 1 A versions 0-2 flexible some", 1, "expected versions"),
    ("api 1 A versions 0 flexible none\nresponse", 2, "the section request"),
    ("api 1 A versions 0 flexible none\nrequest", 2, "the section response"),
    ("api 1 A versions 0 flexible none\nrequest\nresponse\nrequest", 4, "unexpected line after"),
    (FACTS_HEADER + "short poll\nrequest", 2, "a fact about the API"),
    (FACTS_HEADER + "long poll\nlong poll\nrequest", 3, "this fact already"),
    (FACTS_HEADER + "client throttles 1+\nrequest", 2, "are not inside"),
    (FACTS_HEADER + "client throttles\nrequest", 2, "a fact about the API"),
    (FACTS_HEADER + "removed 0-5 in 4.0: cannot do this\nrequest", 2, "are not inside"),
    (FACTS_HEADER + "removed 2 in 4.0\nrequest", 2, "a fact about the API"),
    (FACTS_HEADER + "removed 2 in 4.0:\nrequest", 2, "a fact about the API"),
    ("api 1 A versions 0 flexible none\nrequest header", 2, "or header NUMBER"),
    ("api 1 A versions 0 flexible none\nrequest header one", 2, "or header NUMBER"),
    ("api 1 A versions 0 flexible none\nrequest header 0 1", 2, "are not inside"),
    ("api 1 A versions 0 flexible none\nrequest body 0", 2, "or header NUMBER"),
    (HEADER + "   a int8", 3, "two spaces of"),
    (HEADER + "\ta int8", 3, "two spaces of"),
    (HEADER + "  # a comment\n  a int8\n    b int8", 5, "without a struct"),
    (HEADER + "    a int8", 3, "without a struct"),
    (HEADER + "  a", 3, "a name and a type"),
    (HEADER + "  A int8", 3, "snake_case"),
    (HEADER + "  a-b int8", 3, "snake_case"),
    (HEADER + "  a int24", 3, "unknown type"),
    (HEADER + "  a [int24]", 3, "unknown type"),
    (HEADER + "  a struct", 3, "unknown type"),
    (HEADER + "  a [struct]", 3, "unknown type"),
    (HEADER + "  a [[int8]]", 3, "unknown type"),
    (HEADER + "  a []int8", 3, "unknown type"),
    (HEADER + "  a int8!", 3, "unknown type"),
    (HEADER + "  a int8?", 3, "cannot be null"),
    (HEADER + "  a uuid?4+", 3, "cannot be null"),
    (HEADER + "  a string?6+", 3, "are not inside"),
    (HEADER + "  a string?2+ 4+", 3, "are not inside"),
    (HEADER + "  a int8 1+", 3, "are not inside"),
    (HEADER + "  a int8 3-6", 3, "are not inside"),
    (HEADER + "  a int8 5-3", 3, "are not inside"),
    (HEADER + "  a int8 3-", 3, "expected versions"),
    (HEADER + "  a int8 3..5", 3, "expected versions"),
    (HEADER + "  a [] 4+\n    b int8 3+", 4, "are not inside"),
    (HEADER + "  a [] 3-4\n    b int8 3-5", 4, "are not inside"),
    (HEADER + "  a int8 4+ tag", 3, "a number after tag"),
    (HEADER + "  a int8 4+ tag x", 3, "a number after tag"),
    (HEADER + "  a int8 3+ tag 0", 3, "only flexible versions"),
    (HEADER + "  a int8 4+ tag 0\n  b int8 5 tag 0", 4, "has this name or tag"),
    (HEADER + "  a int8 2-4\n  a int16 4+", 4, "has this name or tag"),
    (HEADER + "  a int8 @no_such_role", 3, "unknown role"),
    (HEADER + "  a int8 topic", 3, "@roles"),
    (HEADER + "  a int8 @topic 3+", 3, "@roles"),
    (HEADER + "  a []", 3, "a struct without fields"),
    (HEADER + "  a {}?\n  b int8", 3, "a struct without fields"),
]


@pytest.mark.parametrize(("text", "line", "detail"), MALFORMED)
def test_malformed(text: str, line: int, detail: str) -> None:
    with pytest.raises(DefinitionError, match=detail) as caught:
        parse_page(text, "page.txt")
    assert (caught.value.page, caught.value.line) == ("page.txt", line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("structure A versions 0", 1),
        ("structure A versions 0 flexible none type x", 1),
        ("structure A versions 0 flexible none kind 1", 1),
        ("structure A versions 0 flexible none type 1+", 1),
        ("structure A versions 0 flexible none type 1 2", 1),
        ("structure A versions 0 flexible none\n  a int8\nrequest", 3),
    ],
)
def test_malformed_structure(text: str, line: int) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_structures(text, "page.txt")
    assert caught.value.line == line

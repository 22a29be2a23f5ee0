"""Keys and values in Confluent's framing, decoded with schemas of a folder or a registry."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.schemas.registry import SchemaRegistry
from dissector.embedded.records import batches, schema_id
from dissector.errors import DissectorError
from tests.dissector.embedded.test_embedded_records import batch

pytest.importorskip("fastavro")

SCHEMA = json.dumps(
    {
        "type": "record", "name": "test",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}],
    }
)  # fmt: skip
ENCODED = bytes.fromhex("36 06 66 6f 6f")
"""The example of the Avro specification, "Complex Types, Records": a is 27, b is foo."""
DECODED = '{"a": 27, "b": "foo"}'


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4) + payload


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "1.avsc").write_text(SCHEMA)
    (tmp_path / "2.json").write_text(json.dumps({"schema": SCHEMA}))
    (tmp_path / "3.json").write_text(json.dumps({"schema": "{}", "schemaType": "JSON"}))
    (tmp_path / "4.json").write_text(json.dumps({"schema": "", "schemaType": "OTHER"}))
    (tmp_path / "5.json").write_text(json.dumps({"schema": SCHEMA, "references": [{"name": "x"}]}))
    return tmp_path


class Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_known = self.path == "/schemas/ids/1"
        body = json.dumps({"schema": SCHEMA} if is_known else {"error_code": 40403}).encode()
        self.send_response(200 if is_known else 503 if self.path.endswith("9") else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (framed(42, b"x"), 42),
        (framed(1 << 24, b"x"), 1 << 24),
        (framed(42, b""), None),
        (framed(0, b"x"), None),
        (framed((1 << 24) + 1, b"x"), None),
        (b"\1" + framed(42, b"x")[1:], None),
        (b"", None),
        ((1_700_000_000_000).to_bytes(8), None),  # a time of Kafka's LongSerializer
    ],
)
def test_the_framing(data: bytes, number: int | None) -> None:
    assert schema_id(data) == number


def test_schemas_of_a_folder(folder: Path) -> None:
    decode = SchemaRegistry(str(folder))
    assert decode(1, ENCODED) == decode(2, ENCODED) == DECODED
    assert decode(3, b'{"c": 1}') == '{"c": 1}'
    assert [decode(number, ENCODED) for number in (4, 5, 6)] == [None] * 3
    assert decode(1, ENCODED + b"\0") is None  # surplus bytes
    assert decode(1, ENCODED[:-1]) is None


def test_schemas_of_a_registry(url: str) -> None:
    decode = SchemaRegistry(url + "/")
    assert decode(1, ENCODED) == DECODED
    assert decode(2, ENCODED) is None
    with pytest.raises(DissectorError, match="status 503"):
        decode(9, ENCODED)


@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_arbitrary_payloads_raise_nothing(payload: bytes) -> None:
    text = _decode()(1, payload)
    assert text is None or json.loads(text).keys() == {"a", "b"}


def _decode() -> SchemaRegistry:
    registry = SchemaRegistry(str(Path(__file__).parent))
    registry._parsed = lambda number: ("AVRO", PARSED)
    return registry


def _parsed() -> object:
    import fastavro

    return fastavro.parse_schema(json.loads(SCHEMA))


PARSED = _parsed()


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(DissectorError, match="neither a folder of schemas nor the URL"):
        SchemaRegistry(str(tmp_path / "none"))
    for name, text, reason in (
        ("1.avsc", "{", "is invalid"),
        ("2.avsc", '{"type": "record"}', "is invalid"),
        ("3.json", "{", "is not JSON"),
        ("5.json", "[" * 100_000, "is not JSON"),
        ("4.json", "{}", "has no field schema"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(DissectorError, match=reason):
            SchemaRegistry(str(tmp_path))(int(name[0]), b"x")


def test_records_show_schemas(folder: Path) -> None:
    data = batch((framed(7, b'{"k": 1}'), framed(1, ENCODED)))
    plain = {event.name: event.value for event in batches(data, "orders").events}
    assert plain["key"] == 'schema 7: {"k": 1}'
    assert plain["value"] == "schema 1, 5 bytes: 3606666f6f"
    decoded = batches(data, "orders", SchemaRegistry(str(folder))).events
    assert {event.name: event.value for event in decoded}["value"] == f"schema 1: {DECODED}"

"""Protobuf in Confluent's framing.

The payloads are those of confluent-kafka 2.16.0 (ProtobufSerializer), the descriptors those of
protoc (grpcio-tools 1.85.1):

    // lib/money.proto
    syntax = "proto3"; package lib; import "google/protobuf/timestamp.proto";
    message Money { string currency = 1; int64 units = 2; google.protobuf.Timestamp at = 3; }

    // order.proto
    syntax = "proto3"; package shop;
    import "lib/money.proto"; import "google/protobuf/wrappers.proto";
    message Other { int32 x = 1; }
    message Order {
      enum State { NEW = 0; PAID = 1; }
      message Line {
        string sku = 1; uint32 count = 2;
        message Part { bytes raw = 1; }
        repeated Part parts = 3;
      }
      string id = 1; State state = 2; repeated Line lines = 3; lib.Money total = 4;
      optional double weight = 6; oneof pay { string card = 7; bool cash = 8; }
      google.protobuf.StringValue note = 9; sint64 delta = 10; fixed32 f = 11;
      map<string, int32> tags = 5;
    }
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.schemas.protobuf import ProtobufSchema, message_indexes
from analysis.schemas.registry import SchemaRegistry
from dissector.errors import DissectorError

pytest.importorskip("fastavro")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")

MONEY = (
    "Cg9saWIvbW9uZXkucHJvdG8SA2xpYhofZ29vZ2xlL3Byb3RvYnVmL3RpbWVzdGFtcC5wcm90byJQCgVNb25leRIQCghj"
    "dXJyZW5jeRgBIAEoCRINCgV1bml0cxgCIAEoAxImCgJhdBgDIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXBi"
    "BnByb3RvMw=="
)
ORDER = (
    "CgtvcmRlci5wcm90bxIEc2hvcBoPbGliL21vbmV5LnByb3RvGh5nb29nbGUvcHJvdG9idWYvd3JhcHBlcnMucHJvdG8i"
    "EgoFT3RoZXISCQoBeBgBIAEoBSLLAwoFT3JkZXISCgoCaWQYASABKAkSIAoFc3RhdGUYAiABKA4yES5zaG9wLk9yZGVy"
    "LlN0YXRlEh8KBWxpbmVzGAMgAygLMhAuc2hvcC5PcmRlci5MaW5lEhkKBXRvdGFsGAQgASgLMgoubGliLk1vbmV5EhMK"
    "BndlaWdodBgGIAEoAUgBiAEBEg4KBGNhcmQYByABKAlIABIOCgRjYXNoGAggASgISAASKgoEbm90ZRgJIAEoCzIcLmdv"
    "b2dsZS5wcm90b2J1Zi5TdHJpbmdWYWx1ZRINCgVkZWx0YRgKIAEoEhIJCgFmGAsgASgHEiMKBHRhZ3MYBSADKAsyFS5z"
    "aG9wLk9yZGVyLlRhZ3NFbnRyeRpdCgRMaW5lEgsKA3NrdRgBIAEoCRINCgVjb3VudBgCIAEoDRIkCgVwYXJ0cxgDIAMo"
    "CzIVLnNob3AuT3JkZXIuTGluZS5QYXJ0GhMKBFBhcnQSCwoDcmF3GAEgASgMGisKCVRhZ3NFbnRyeRILCgNrZXkYASAB"
    "KAkSDQoFdmFsdWUYAiABKAU6AjgBIhoKBVN0YXRlEgcKA05FVxAAEggKBFBBSUQQAUIFCgNwYXlCCQoHX3dlaWdodGIG"
    "cHJvdG8z"
)
PAYLOADS = {
    "02020a016110011a0b0a017310031a040a02ff0022070a0345555210052a050a016b10013a0178500d5d0900"
    "0000": {
        "id": "a", "state": "PAID", "total": {"currency": "EUR", "units": "5"}, "tags": {"k": 1},
        "lines": [{"sku": "s", "count": 3, "parts": [{"raw": "/wA="}]}], "card": "x",
        "delta": "-7", "f": 9,
    },
    "0202": {"id": "", "state": "NEW", "lines": [], "delta": "0", "f": 0, "tags": {}},
    "0402000a0171": {"sku": "q", "count": 0, "parts": []},  # Order.Line
    "060200000a03313233": {"raw": "MTIz"},  # Order.Line.Part
    "0008ffffffffffffffffff01": {"x": -1},  # the first message: a single 0
}  # fmt: skip
SCHEMA = ProtobufSchema(ORDER, {"lib/money.proto": MONEY})


@pytest.mark.parametrize("payload", PAYLOADS)
def test_messages(payload: str) -> None:
    text = SCHEMA(bytes.fromhex(payload))
    assert text is not None
    assert json.loads(text) == PAYLOADS[payload]


@pytest.mark.parametrize(
    "payload",
    ["", "02", "0208", "0006", "04020a", "01", "ffffffffff0f", "80", "0802020202", "02020a05"],
)
def test_payloads_that_do_not_match(payload: str) -> None:
    assert SCHEMA(bytes.fromhex(payload)) is None


@given(st.binary(max_size=40))
def test_arbitrary_payloads_raise_nothing(payload: bytes) -> None:
    text = SCHEMA(payload)
    assert text is None or isinstance(json.loads(text), dict)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8), st.binary(max_size=4))
def test_message_indexes(path: list[int], message: bytes) -> None:
    """The encoding of zigzag varints: protobuf.dev, "Encoding", "Signed Integers"."""
    encoded = b""
    for number in [len(path), *path]:
        zigzag = number * 2
        while zigzag > 0x7F:
            encoded += bytes([zigzag & 0x7F | 0x80])
            zigzag >>= 7
        encoded += bytes([zigzag])
    assert message_indexes(encoded + message) == (path, len(encoded))


def test_maps_do_not_count_as_messages() -> None:
    """A map before a nested message: the compiler puts the type of its entries first."""
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(ORDER))
    nested = list(file.message_type[1].nested_type)
    del file.message_type[1].nested_type[:]
    file.message_type[1].nested_type.extend(reversed(nested))
    schema = base64.b64encode(file.SerializeToString()).decode()
    text = ProtobufSchema(schema, {"lib/money.proto": MONEY})(bytes.fromhex("0402000a0171"))
    assert text is not None
    assert json.loads(text) == {"sku": "q", "count": 0, "parts": []}


def test_a_folder_with_references(tmp_path: Path) -> None:
    reference = {"name": "lib/money.proto", "subject": "lib/money.proto", "version": 3}
    order = {"schemaType": "PROTOBUF", "schema": ORDER, "references": [reference]}
    (tmp_path / "7.json").write_text(json.dumps(order))
    (tmp_path / "8.json").write_text(json.dumps(order | {"references": []}))
    (tmp_path / "9.json").write_text(json.dumps(order | {"schema": 'syntax = "proto3";'}))
    decode = SchemaRegistry(str(tmp_path))
    with pytest.raises(DissectorError, match=r"lib%2Fmoney\.proto-3 is missing"):
        decode(7, b"")
    (tmp_path / "lib%2Fmoney.proto-3.json").write_text(
        json.dumps(order | {"schema": MONEY, "references": []})
    )
    assert decode(7, bytes.fromhex("0008ffffffffffffffffff01")) == '{"x": -1}'
    with pytest.raises(DissectorError, match=r"schema 8 .* is invalid: .*lib/money\.proto"):
        decode(8, b"")
    with pytest.raises(DissectorError, match="format=serialized"):
        decode(9, b"")

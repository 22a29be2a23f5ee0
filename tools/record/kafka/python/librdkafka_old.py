"""An old librdkafka from an old wheel of confluent-kafka: produce, and consume in a group.

    python librdkafka_old.py FOLDER BOOTSTRAP TOPIC GROUP

The wheel needs an old Python, so this program calls the C library in it.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_size_t, c_void_p
from pathlib import Path

folder, bootstrap, topic, group = sys.argv[1:]
RECORDS = 20
PRODUCER, CONSUMER = 0, 1
COPY, ANY_PARTITION = 2, -1
TEXT = 512

libraries = sorted(Path(folder, "confluent_kafka", ".libs").glob("*.so*"))
for name in ("libz", "libcrypto", "libssl"):  # librdkafka names them by their file names
    for path in libraries:
        if path.name.startswith(name):
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
lib = ctypes.CDLL(str(next(path for path in libraries if path.name.startswith("librdkafka"))))


class Message(Structure):
    """The first fields of rd_kafka_message_t."""

    _fields_ = (("err", c_int), ("topic", c_void_p), ("partition", c_int32))


def function(name: str, result: object, *arguments: object) -> object:
    """A function of the library, with its types."""
    symbol = getattr(lib, name)
    symbol.restype, symbol.argtypes = result, arguments
    return symbol


conf_new = function("rd_kafka_conf_new", c_void_p)
conf_set = function("rd_kafka_conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
new = function("rd_kafka_new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
topic_new = function("rd_kafka_topic_new", c_void_p, c_void_p, c_char_p, c_void_p)
produce = function(
    "rd_kafka_produce", c_int, c_void_p, c_int32, c_int, c_char_p, c_size_t, c_char_p, c_size_t,
    c_void_p,
)  # fmt: skip
flush = function("rd_kafka_flush", c_int, c_void_p, c_int)
topic_destroy = function("rd_kafka_topic_destroy", None, c_void_p)
destroy = function("rd_kafka_destroy", None, c_void_p)
list_new = function("rd_kafka_topic_partition_list_new", c_void_p, c_int)
list_add = function("rd_kafka_topic_partition_list_add", c_void_p, c_void_p, c_char_p, c_int32)
list_destroy = function("rd_kafka_topic_partition_list_destroy", None, c_void_p)
subscribe = function("rd_kafka_subscribe", c_int, c_void_p, c_void_p)
set_consumer = function("rd_kafka_poll_set_consumer", c_int, c_void_p)
poll = function("rd_kafka_consumer_poll", POINTER(Message), c_void_p, c_int)
message_destroy = function("rd_kafka_message_destroy", None, POINTER(Message))
close = function("rd_kafka_consumer_close", c_int, c_void_p)
version = function("rd_kafka_version_str", c_char_p)


def client(kind: int, **settings: str) -> int:
    """A producer or a consumer."""
    conf, error = conf_new(), ctypes.create_string_buffer(TEXT)
    common = {"bootstrap.servers": bootstrap, "debug": "protocol", "broker.address.family": "v4"}
    for name, value in {**common, **settings}.items():
        if conf_set(conf, name.replace("_", ".").encode(), value.encode(), error, TEXT):
            raise RuntimeError(error.value.decode())
    handle = new(kind, conf, error, TEXT)
    if not handle:
        raise RuntimeError(error.value.decode())
    return handle


print(version().decode())
for codec in ("none", "gzip", "lz4"):
    producer = client(PRODUCER, client_id=f"producer-{codec}", compression_codec=codec)
    target = topic_new(producer, topic.encode(), None)
    for number in range(RECORDS):
        value, key = f"record {number} ".encode() * 4, f"key-{number}".encode()
        assert not produce(target, ANY_PARTITION, COPY, value, len(value), key, len(key), None), (
            "a record was refused"
        )
    assert not flush(producer, 30_000), "records were not delivered"
    topic_destroy(target)
    destroy(producer)

consumer = client(CONSUMER, client_id="consumer", group_id=group, auto_offset_reset="earliest")
set_consumer(consumer)
topics = list_new(1)
list_add(topics, topic.encode(), ANY_PARTITION)
assert not subscribe(consumer, topics), "the subscription was refused"
list_destroy(topics)
seen = 0
while seen < 3 * RECORDS:
    message = poll(consumer, 30_000)
    assert message, "no record came within 30 s"
    seen += message.contents.err == 0
    message_destroy(message)
close(consumer)
destroy(consumer)
print(f"{seen} records")

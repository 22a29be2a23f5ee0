"""librdkafka: request all topics in a loop, as a monitor does, and subscribe to a regex.

python list_topics.py BOOTSTRAP SECONDS GROUP
"""

import sys
import time

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

bootstrap, seconds, group = sys.argv[1:]
common = {"bootstrap.servers": bootstrap, "debug": "protocol", "broker.address.family": "v4"}

consumer = Consumer({**common, "client.id": "regex", "group.id": group})
consumer.subscribe(["^plain.*"])
admin = AdminClient({**common, "client.id": "monitor"})
end = time.monotonic() + float(seconds)
while time.monotonic() < end:
    assert "plain" in admin.list_topics(timeout=10).topics
    consumer.poll(0)
    time.sleep(0.02)
consumer.close()

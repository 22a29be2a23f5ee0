"""Records captures of real Apache Kafka, with the broker's log of each request in them.

    python -m tools.record.kafka SCENARIO...      (as root; --help names the scenarios)

A scenario is a short function that starts brokers and clients. `Recording` runs it: tcpdump
captures, the brokers write their request log, librdkafka its protocol log. At the end, the capture
is compressed, the logs become `NAME.truth.jsonl.zst`, and `captures/README.md` gets a row.

Everything runs in a separate network namespace, so that a capture has no other packets, all ports
are free, and nothing leaves the machine. Brokers and clients are downloaded from Maven Central,
PyPI, npm and the Go proxy with their own clients, before the namespace is entered, into
`~/.cache/kafka-dissector`. The tests only read the committed files.
"""

"""Captures of real Apache Kafka, with the broker's own word for every request in them.

    python -m tools.record.kafka SCENARIO...      (as root; --help names the scenarios)

A scenario is a short function that says what happens: which brokers stand, which clients do what.
`Recording` runs it: tcpdump captures, the brokers write their request log, librdkafka its protocol
log; when all is over the capture is compressed, the logs become `NAME.truth.jsonl.zst`, and
`captures/README.md` gets its row.

Everything runs in a network namespace of its own, so that a capture holds nobody else's packets,
any port is free, and nothing ever leaves the machine. Brokers and clients come from Maven Central,
PyPI, npm and the Go proxy through their own clients, before the namespace is entered, into
`~/.cache/kafka-dissector`. The tests need none of this: they read what is committed.
"""

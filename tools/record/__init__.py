"""Small real captures, with what the clients in them say of their own requests.

    python -m tools.record SCENARIO...      (as root; --help names the scenarios)

A scenario is a short function that says which broker stands and what its clients do. `Recording`
runs it in a network namespace of its own, so that a capture holds nobody else's packets and
nothing leaves the machine: tcpdump or dumpcap captures, the clients log at their most talkative,
and when all is over the capture, the logs and the truth drawn from them lie in `captures/`, with a
row in its README.

The brokers are in Python packages, the dependency group `record`: librdkafka's mock cluster and
Tansu. Anybody can record again. Apache Kafka itself is recorded by `tools.record.kafka`. The
tests need none of this: they read what is committed.

    recording   one recording, from the capturing tool to the committed files
    mock, tansu the brokers
    clients     where clients write their logs
    truth       logs to facts: one row for each request that a client sent
    ledger      the rows of captures/README.md
    scenarios   what happens
"""

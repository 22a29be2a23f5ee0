"""Records small real captures, with facts from the clients' logs about their requests.

    python -m tools.record SCENARIO...      (as root; --help names the scenarios)

A scenario is a short function that starts a broker and its clients. `Recording` runs it in a
separate network namespace, so that a capture has no other packets and nothing leaves the machine:
tcpdump or dumpcap captures, and the clients log at the most detailed level. At the end, the
capture, the logs and the truth derived from them are in `captures/`, with a row in its README.

The brokers are in Python packages, the dependency group `record`: librdkafka's mock cluster and
Tansu. `tools.record.kafka` records Apache Kafka itself. The tests only read the committed files.

    recording   one recording, from the capturing tool to the committed files
    mock, tansu the brokers
    clients     where clients write their logs
    truth       logs to facts: one row for each request that a client sent
    ledger      the rows of captures/README.md
    scenarios   the work of the clients
"""

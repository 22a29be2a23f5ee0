-- The modules of this file. Each part below fills one of these tables.
local kafkad = Proto("kafkad", "Kafka (kafka-dissector)")
local wire, fields, facts, walker, layouts, batches = {}, {}, {}, {}, {}, {}
local conversations, messages = {}, {}
local SECRET_BYTES = {secret = true, envelope_request = true, envelope_response = true}

kafkad.prefs.ports = Pref.range("Broker ports", "9092",
    "TCP and TLS ports of brokers. Other ports are recognised by the first request.", 65535)
kafkad.prefs.show_secrets = Pref.bool("Show secrets", false,
    "Show credentials and configuration values that may be secret.")

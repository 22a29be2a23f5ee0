-- The modules of this file. Each part below fills one of these tables.
local is_first, kafkad = pcall(Proto, "kafkad", "Kafka (kafka-dissector)")
if not is_first then
    io.stderr:write("kafka.lua: the plugin is already installed; this file is not loaded\n")
    return
end
local wire, fields, facts, walker, layouts, batches = {}, {}, {}, {}, {}, {}
local conversations, messages = {}, {}
local SECRET_BYTES = {secret = true, envelope_request = true, envelope_response = true}

kafkad.prefs.ports = Pref.range("Broker ports", "9092",
    "TCP and TLS ports of brokers. Other ports are recognised by the first request.", 65535)
kafkad.prefs.show_secrets = Pref.bool("Show secrets", false,
    "Show credentials and configuration values that may be secret.")

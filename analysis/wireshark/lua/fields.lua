-- The fields of Wireshark. A field of an API is kafkad.API.FIELD, in all versions and both
-- directions. If a name has several types in an API, the later ones end with their type. The number
-- of elements of an array is kafkad.API.FIELD.count. Some facts are also in a field of all APIs.
local experts = {
    malformed = ProtoExpert.new("kafkad.malformed", "Does not match the protocol",
        expert.group.MALFORMED, expert.severity.ERROR),
    cut = ProtoExpert.new("kafkad.cut", "The packet was cut when it was captured",
        expert.group.UNDECODED, expert.severity.NOTE),
    unknown = ProtoExpert.new("kafkad.unknown", "API or version that the plugin does not know",
        expert.group.UNDECODED, expert.severity.WARN),
    unmatched = ProtoExpert.new("kafkad.unmatched", "The request is not in the capture",
        expert.group.SEQUENCE, expert.severity.NOTE),
    surplus = ProtoExpert.new("kafkad.surplus", "Bytes after the last field",
        expert.group.PROTOCOL, expert.severity.NOTE),
    error = ProtoExpert.new("kafkad.error", "Error code other than 0",
        expert.group.RESPONSE_CODE, expert.severity.NOTE),
    limit = ProtoExpert.new("kafkad.limit", "Fields beyond the limit are not shown",
        expert.group.UNDECODED, expert.severity.NOTE),
    internal = ProtoExpert.new("kafkad.internal", "Internal error of the plugin",
        expert.group.UNDECODED, expert.severity.ERROR),
}
do
    local all = {}

    local function new(make, name, ...)
        local field = make("kafkad." .. name, ...)
        all[#all + 1] = field
        return field
    end

    local MAKE = {
        bool = ProtoField.bool, int8 = ProtoField.int8, int16 = ProtoField.int16,
        uint16 = ProtoField.uint16, int32 = ProtoField.int32, uint32 = ProtoField.uint32,
        int64 = ProtoField.int64, float64 = ProtoField.double, uuid = ProtoField.string,
        string = ProtoField.string, bytes = ProtoField.bytes, records = ProtoField.bytes,
        struct = ProtoField.none, secret = ProtoField.string,
    }
    local VALUES = {error_code = error_names}

    local api_names = {}
    for key, api in pairs(apis) do
        api_names[key] = api.name
    end

    -- The field of a line of an API's page: made for the first line with its name and type.
    local function field_of(api, line)
        local kind = SECRET_BYTES[line.role] and "secret" or line[2]
        local name = api.field .. "." .. line[1]
        local types = api.types[line[1]] or {}
        api.types[line[1]] = types
        if not types[kind] then
            local path = next(types) and name .. "_" .. kind or name
            local values = VALUES[line.role]
            types[kind] = values and new(MAKE[kind], path, line[1], base.DEC, values)
                or new(MAKE[kind], path, line[1])
        end
        if line.array and not types.count then
            types.count = new(ProtoField.int32, name .. ".count", line[1])
        end
        line.field, line.count = types[kind], types.count
    end

    local function add(api, lines, start)
        for index = start, #lines do
            field_of(api, lines[index])
            add(api, lines[index], 5)
        end
    end

    for key = 0, LAST_API do
        local api = apis[key]
        if api then
            api.types = {}
            add(api, api.request, 1)
            add(api, api.response, 1)
            api.types = nil
        end
    end

    fields.size = new(ProtoField.int32, "size", "Size")
    fields.is_request = new(ProtoField.bool, "is_request", "Is request")
    fields.api_key = new(ProtoField.int16, "api_key", "API key", base.DEC, api_names)
    fields.api_version = new(ProtoField.int16, "api_version", "API version")
    fields.correlation_id = new(ProtoField.int32, "correlation_id", "Correlation id")
    fields.client_id = new(ProtoField.string, "client_id", "Client id")
    fields.response_in = new(ProtoField.framenum, "response_in", "Response in", base.NONE,
        frametype.RESPONSE)
    fields.response_to = new(ProtoField.framenum, "response_to", "Response to", base.NONE,
        frametype.REQUEST)
    fields.latency = new(ProtoField.relative_time, "latency", "Latency")
    fields.tagged_fields = new(ProtoField.uint32, "tagged_fields", "_tagged_fields")
    fields.unknown_tag = new(ProtoField.bytes, "unknown_tag", "Unknown tag")
    fields.null = new(ProtoField.string, "null", "Null")
    fields.undecoded = new(ProtoField.string, "undecoded", "Undecoded")
    fields.sasl_token = new(ProtoField.string, "sasl_token", "SASL token")
    fields.continuation = new(ProtoField.none, "continuation", "Bytes that do not start a message")

    -- Fields of all APIs, by role.
    fields.common = {
        error_code = new(ProtoField.int16, "error_code", "Error code", base.DEC, error_names),
        topic = new(ProtoField.string, "topic", "Topic"),
        topic_id = new(ProtoField.string, "topic_id", "Topic id"),
        partition = new(ProtoField.int32, "partition", "Partition"),
        group_id = new(ProtoField.string, "group_id", "Group id"),
        member_id = new(ProtoField.string, "member_id", "Member id"),
        transactional_id = new(ProtoField.string, "transactional_id", "Transactional id"),
        producer_id = new(ProtoField.int64, "producer_id", "Producer id"),
        throttle_time_ms = new(ProtoField.int32, "throttle_time_ms", "Throttle time, ms"),
    }

    local CODECS = {[0] = "none", "gzip", "snappy", "lz4", "zstd"}
    local TIMESTAMPS = {[0] = "create_time", "log_append_time"}
    fields.batch = {}
    for name, field in pairs({
        base_offset = {ProtoField.int64}, length = {ProtoField.int32},
        leader_epoch = {ProtoField.int32}, magic = {ProtoField.int8},
        crc = {ProtoField.uint32, base.HEX}, attributes = {ProtoField.uint16, base.HEX},
        codec = {ProtoField.uint8, base.DEC, CODECS},
        timestamp_type = {ProtoField.uint8, base.DEC, TIMESTAMPS},
        is_transactional = {ProtoField.bool}, is_control = {ProtoField.bool},
        last_offset_delta = {ProtoField.int32}, base_timestamp = {ProtoField.int64},
        max_timestamp = {ProtoField.int64}, producer_id = {ProtoField.int64},
        producer_epoch = {ProtoField.int16}, base_sequence = {ProtoField.int32},
        record_count = {ProtoField.int32}, key_size = {ProtoField.int32},
        value_size = {ProtoField.int32},
    }) do
        fields.batch[name] = new(field[1], "batch." .. name, name, field[2], field[3])
    end
    fields.record_batch = new(ProtoField.none, "batch", "Record batch")

    kafkad.fields = all
    local listed = {}
    for _, each in pairs(experts) do
        listed[#listed + 1] = each
    end
    kafkad.experts = listed
end

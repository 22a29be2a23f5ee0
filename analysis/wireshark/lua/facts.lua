-- Facts that fields state, whether the fields are shown or not: errors, acks, the names of topic ids,
-- and which values are secret.
do
    local MOST_NOTES = 100 -- expert infos of a message
    local METADATA, METADATA_ID = "__cluster_metadata", ("A"):rep(20) .. "AQ"
    local readers = {}
    facts.readers = readers -- by role: (message, position, text of the value, item or nil)

    function readers.error_code(message, at, _, shown)
        local code = wire.int16(message, at)
        if code ~= 0 then
            local name = error_names[code] or ("error " .. code)
            message.errors[#message.errors + 1] = name
            if message.item and #message.errors <= MOST_NOTES then
                (shown or message.item):add_proto_expert_info(experts.error, name)
            end
        end
    end

    function readers.acks(message, at)
        message.acks = wire.int16(message, at)
    end

    function readers.topic(message, _, value)
        message.topic = value
    end

    function readers.topic_id(message, _, value)
        message.topic_id = value
    end

    function readers.config_name(message, _, value)
        message.config_name = value
    end

    function readers.is_sensitive(message, at)
        message.is_sensitive = string.byte(message.data, at) ~= 0
    end

    -- Records of __cluster_metadata with secrets (KIP-631): a null key, the length of the value, and
    -- the first bytes of a ConfigRecord or UserScramCredentialRecord.
    local FRAMED = "\1[\128-\255]?[%z\1-\127]\1[\4\11]%z"

    -- Searches the first bytes alone before the pattern, which takes ten times as long.
    local function has_framed(records)
        local has_prefix = records:find("\1\4\0", 1, true) or records:find("\1\11\0", 1, true)
        return has_prefix and records:find(FRAMED) ~= nil
    end

    -- Whether a value is secret: credentials are; records of __cluster_metadata may have some, also
    -- if the name of the topic is damaged; configurations are if the broker marks them so, or if it
    -- does not and Kafka may treat their name as sensitive.
    function facts.is_secret(message, item, at, stop)
        if kafkad.prefs.show_secrets then
            return false
        elseif SECRET_BYTES[item.role] then
            return true
        elseif item.role == "records" then
            return message.topic == METADATA or message.topic_id == METADATA_ID
                or has_framed(message.data:sub(at, stop - 1))
        elseif item.role ~= "config_value" then
            return false
        elseif message.is_sensitive ~= nil then
            return message.is_sensitive
        end
        return not open_configs[message.config_name or ""]
    end
end

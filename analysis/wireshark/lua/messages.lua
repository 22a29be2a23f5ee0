-- One message: its header, its body, and what the packet list shows of it.
do
    local API_VERSIONS, UNSUPPORTED_VERSION = 18, 35
    local handle
    local FEW, PART = 4, 4 -- surplus that a response may have: bytes, and a fraction of its fields

    local function dissector()
        handle = handle or Dissector.get("kafkad")
        return handle
    end

    local function show(message, tree, field, at, stop)
        if tree and (message.is_visible or tree:referenced(field)) then
            tree:add(field, message.tvb(at - 1, stop - at))
        end
        return stop
    end

    -- The bytes from a position on, of which only the number is shown: they may be secret.
    local function show_undecoded(message, tree, at)
        if tree and at < message.captured then
            local size = message.captured - at
            local value = kafkad.prefs.show_secrets and wire.hex(message.data:sub(at))
                or (size .. " bytes [redacted]")
            tree:add(fields.undecoded, message.tvb(at - 1, 0), value)
        end
    end

    local function request_header(message, tree)
        local at = 5
        at = show(message, tree, fields.api_key, at, wire.after(message, at, 2))
        at = show(message, tree, fields.api_version, at, wire.after(message, at, 2))
        at = show(message, tree, fields.correlation_id, at, wire.after(message, at, 4))
        local layout = message.layout
        if layout and layout.header == 0 then
            return at
        end
        local size, start = wire.length(message, at, wire.int16, false, true)
        local stop = size and wire.after(message, start, size) or start
        local text = size and wire.text(message.data:sub(start, stop - 1))
        if tree and size then
            tree:add(fields.client_id, message.tvb(at - 1, stop - at), text)
        elseif tree then
            tree:add(fields.null, message.tvb(at - 1, 2), "client_id"):set_text("Client id: null")
        end
        if layout and layout.header == 2 then
            stop = walker.tags(message, {}, stop, tree)
        end
        return stop, text
    end

    local function response_header(message, tree)
        local at = show(message, tree, fields.correlation_id, 5, wire.after(message, 5, 4))
        if tree and message.key then
            tree:add(fields.api_key, message.tvb(4, 0), message.key):set_generated()
            tree:add(fields.api_version, message.tvb(4, 0), message.version):set_generated()
        end
        if tree and message.client_id then
            tree:add(fields.client_id, message.tvb(4, 0), message.client_id):set_generated()
        end
        if message.layout and message.layout.header == 1 then
            return walker.tags(message, {}, at, tree)
        end
        return at
    end

    -- A broker that does not know the version of ApiVersions responds in version 0 (KIP-511).
    local function is_fallback(message)
        if message.key ~= API_VERSIONS or message.direction ~= "response" or #message.data < 14 then
            return false
        end
        local code, count = wire.short(message.data, 9), wire.int(message.data, 11)
        return code == UNSUPPORTED_VERSION and message.stop - 1 == 14 + 6 * count
    end

    -- Reads a body. Returns the number of bytes after its last field.
    local function read_body(message, tree, at)
        message.elements = math.max(16384, math.min((message.stop - at) / 4, 2097152))
        local stop = walker.fields(message, message.layout, at, tree)
        local surplus = message.stop - stop
        if message.direction == "response" and surplus > math.max(FEW, (stop - at) / PART) then
            wire.fail("malformed", stop, surplus .. " bytes are left over")
        end
        return surplus
    end

    -- Fails before the body of an API with secrets if it contradicts its definition. Its fields may
    -- be misaligned: then each of them may contain a secret.
    local function check_alignment(message, at)
        if kafkad.prefs.show_secrets or not apis_with_secrets[message.direction][message.key] then
            return
        end
        local trial = setmetatable({item = false, errors = {}}, {__index = message})
        local is_valid, failure = pcall(read_body, trial, nil, at)
        if not is_valid and failure.kind ~= "cut" then
            message.hidden_from = at
            error(failure, 0)
        end
    end

    local function body(message, tree, at)
        check_alignment(message, at)
        local surplus = read_body(message, tree, at)
        if surplus > 0 then
            local text = surplus .. " bytes after the last field"
            message.item:add_proto_expert_info(experts.surplus, text)
        end
    end

    local function decode(message, tree)
        local read = message.direction == "request" and request_header or response_header
        local at, client_id = read(message, tree)
        message.client_id = message.client_id or client_id
        local layout = message.layout
        if layout and tree then
            message.layout = layouts.in_tree(layout, tree, message.is_visible)
        end
        if layout and (layout.has_facts or message.layout ~= layout) then
            return body(message, message.layout ~= layout and tree or nil, at)
        elseif layout then
            return
        elseif message.key then
            local text = "The plugin does not know this " .. (apis[message.key] and "version" or "API")
            message.item:add_proto_expert_info(experts.unknown, text)
        else
            message.item:add_proto_expert_info(experts.unmatched)
        end
        show_undecoded(message, tree, at)
    end

    -- Reads the fields of bytes that may be a request. Returns whether all are there, the position
    -- after them or the failure, and the client id.
    local function try_request(data, size, key, version)
        local message = {
            data = data, captured = #data + 1, stop = size + 1, direction = "request",
            layout = layouts.of(key, "request", version), items = 0, errors = {}, elements = 16384,
        }
        local client_id
        local function read()
            local at
            at, client_id = request_header(message)
            return walker.fields(message, message.layout, at)
        end
        local is_whole, result = pcall(read)
        return is_whole, result, client_id
    end

    -- The position after the last field of a request with a size that contradicts its fields.
    function messages.contradicted_end(data, size, key, version)
        local is_whole, stop = try_request(data, size, key, version)
        return is_whole and size + 1 - stop > FEW and stop or nil
    end

    -- Whether bytes are a request: all its fields fit, or they begin with a readable client id and
    -- fit as far as they go.
    function messages.is_request(data, size, key, version)
        local is_whole, result, client_id = try_request(data, size, key, version)
        if client_id and client_id:find("[%z\1-\31\127]") then
            return false
        elseif is_whole then
            return size + 1 - result <= FEW
        end
        return result.kind == "cut" and client_id ~= nil and client_id ~= ""
    end

    local function show_failure(message, tree, failure)
        if type(failure) ~= "table" then
            message.item:add_proto_expert_info(experts.internal, tostring(failure))
            return
        end
        local text = "offset " .. (failure.at - 1) .. ": " .. failure.text
        message.item:add_proto_expert_info(experts[failure.kind], text)
        show_undecoded(message, tree, message.hidden_from or failure.at)
    end

    local function title(message)
        if message.is_token then
            return "SASL token"
        end
        local api = apis[message.key]
        local name = api and api.name or message.key and "API " .. message.key
            or "correlation id " .. tostring(message.correlation)
        local version = message.key and " v" .. message.version or ""
        return name .. version .. (message.direction == "request" and " Request" or " Response")
    end

    local function show_links(message, tree)
        local range = message.tvb(0, 0)
        if message.peer and message.direction == "request" then
            tree:add(fields.response_in, range, message.peer):set_generated()
        elseif message.peer then
            tree:add(fields.response_to, range, message.peer):set_generated()
            local latency = math.floor(message.latency * 1e9 + 0.5)
            local nanoseconds = math.fmod(latency, 1e9) -- negative as the latency
            local time = NSTime.new((latency - nanoseconds) / 1e9, nanoseconds)
            tree:add(fields.latency, range, time):set_generated()
        end
    end

    local function show_facts(message, tree)
        show(message, tree, fields.size, 1, math.min(5, message.captured))
        tree:add(fields.is_request, message.tvb(0, 0), message.direction == "request")
            :set_generated()
        show_links(message, tree)
    end

    local function show_token(message, tree)
        if tree and message.captured > 5 then
            local value = kafkad.prefs.show_secrets and wire.hex(message.data:sub(5))
                or "[redacted]"
            tree:add(fields.sasl_token, message.tvb(4, 0), value)
        end
    end

    -- Reads a message, and shows it below its item, if a tree is given.
    local function read(message, tree)
        if message.is_token then
            show_token(message, tree)
            return
        end
        local announced = message.captured > 4 and wire.int32(message, 1) or 0
        if announced > message.stop - 5 then
            local text = "a size of " .. announced .. " for " .. message.stop - 5 .. " bytes"
            message.item:add_proto_expert_info(experts.malformed, text)
        end
        local is_valid, failure = pcall(decode, message, tree)
        if not is_valid then
            show_failure(message, tree, failure)
        elseif walker.is_full(message) then
            message.item:add_proto_expert_info(experts.limit)
        end
    end

    local function summary(message)
        local errors = #message.errors
        if errors == 0 then
            return title(message)
        end
        local count = errors > 1 and " (" .. errors .. ")" or ""
        return title(message) .. " " .. message.errors[1] .. count
    end

    -- Dissects the bytes of one message. Returns its text for the packet list. Later passes read
    -- only messages that are shown, or whose fields a filter needs.
    function messages.dissect(tvb, pinfo, tree, direction, stream)
        local data = tvb:raw(0, tvb:len())
        local message = {
            data = data, tvb = tvb, direction = direction, captured = #data + 1,
            stop = tvb:reported_len() + 1, items = 0, errors = {}, elements = 0,
            masked = 0,
        }
        conversations.identify(stream, message, pinfo)
        message.item = tree:add(kafkad, tvb())
        local is_shown = tree:referenced(dissector())
        if message.text and not is_shown then
            return message.text
        end
        if message.key and not message.is_token then
            local version = is_fallback(message) and 0 or message.version
            message.layout = layouts.of(message.key, direction, version)
        end
        message.is_visible = is_shown and tree.visible
        if is_shown then
            walker.bind(tree, tvb)
            show_facts(message, message.item)
        end
        if message.is_visible then
            message.item:set_text("Kafka " .. (message.text or title(message)))
        end
        read(message, is_shown and message.item or nil)
        local text = summary(message)
        conversations.record(stream, message, text)
        return text
    end
end

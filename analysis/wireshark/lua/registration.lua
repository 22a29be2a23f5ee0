-- Connects the plugin with Wireshark: ports, TLS, heuristics, reassembly, preferences.
do
    local function size_of(tvb, offset, is_request)
        local left = tvb:len() - offset
        local size = conversations.size(tvb:raw(offset, math.min(4, left)), 1)
        if size and size > left and is_request then
            size = conversations.request_size(tvb:raw(offset, left))
        end
        return size or math.max(tvb:reported_len() - offset, 4)
    end

    -- Dissects bytes that start with a message. Returns their number, or 0 to refuse them.
    local function dissect(tvb, pinfo, tree)
        if tvb:len() == 0 then
            return 0
        end
        local stream = conversations.stream(pinfo)
        local direction = conversations.direction(stream, tvb, pinfo)
        if not direction and not stream.client_port then
            return 0
        end
        local info = pinfo.cols.info
        pinfo.cols.protocol = "Kafka"
        info:clear()
        if not direction then
            tree:add(kafkad, tvb()):add(fields.continuation, tvb())
            info:set("Kafka bytes that do not start a message")
            return tvb:len()
        end
        local separator = ""
        local function size(given, packet, offset)
            local needed = size_of(given, offset, direction == "request" and not stream.client_tokens)
            if not packet.visited and needed > given:len() - offset then
                conversations.start(stream, direction, packet, given, offset)
            end
            return needed
        end
        local function message(given, packet, root)
            info:append(separator .. messages.dissect(given, packet, root, direction, stream))
            separator = ", "
            return given:len()
        end
        if not pinfo.visited and tvb:len() < 4 then
            conversations.start(stream, direction, pinfo, tvb, 0)
        end
        dissect_tcp_pdus(tvb, tree, 4, size, message)
        info:fence()
        return tvb:len()
    end

    function kafkad.dissector(tvb, pinfo, tree)
        return dissect(tvb, pinfo, tree)
    end

    function kafkad.init()
        conversations.reset()
    end

    local function is_request(tvb)
        return conversations.is_request(tvb:raw(0, math.min(tvb:len(), 300)))
    end

    local function tcp_heuristic(tvb, pinfo, tree)
        if not is_request(tvb) then
            return false
        end
        pinfo.conversation = kafkad -- for the later packets of the connection
        dissect(tvb, pinfo, tree)
        return true
    end

    -- TLS asks again for each TLS record: the conversation of its packets stays TLS.
    local function tls_heuristic(tvb, pinfo, tree)
        if not conversations.stream(pinfo).client_port and not is_request(tvb) then
            return false
        end
        return dissect(tvb, pinfo, tree) > 0
    end
    kafkad:register_heuristic("tcp", tcp_heuristic)
    kafkad:register_heuristic("tls", tls_heuristic)

    local TABLES = {DissectorTable.get("tcp.port"), DissectorTable.get("tls.port")}
    local registered

    local function register()
        conversations.ports = {}
        for first, last in tostring(kafkad.prefs.ports):gmatch("(%d+)%-?(%d*)") do
            for port = tonumber(first), tonumber(last) or tonumber(first) do
                conversations.ports[port] = true
            end
        end
        for _, each in ipairs(TABLES) do
            if registered and registered ~= "" then
                each:remove(registered, kafkad)
            end
            if kafkad.prefs.ports ~= "" then
                each:add(kafkad.prefs.ports, kafkad)
            end
        end
        registered = kafkad.prefs.ports
    end
    for _, each in ipairs(TABLES) do
        each:add_for_decode_as(kafkad)
    end
    register()

    function kafkad.prefs_changed()
        if kafkad.prefs.ports ~= registered then
            register()
        end
    end
end

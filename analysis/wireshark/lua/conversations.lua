-- The state of connections. Wireshark dissects packets in order at first, then in any order: so the
-- first pass adds a row for each message, and later passes only read the rows. Wireshark calls
-- kafkad.init before each first pass.
do
    local int16, int32 = wire.short, wire.int
    local MOST_BYTES = 104857600 -- socket.request.max.bytes of brokers
    local NEWER = 16 -- versions above the newest known one, in a first ApiVersions request
    local SASL_HANDSHAKE, API_VERSIONS = 17, 18
    local HEAD = 300 -- bytes that are enough to recognise a request
    local START = 8 -- bytes up to the correlation id of a response
    local stream_field = Field.new("tcp.stream")
    local lost_field = Field.new("tcp.analysis.lost_segment")
    local sequence_field = Field.new("tcp.seq")
    local raw_sequence_field, raw_ack_field = Field.new("tcp.seq_raw"), Field.new("tcp.ack_raw")
    local length_field = Field.new("tcp.len")

    local streams
    local numbers -- of streams by packet, where the first pass of tshark -2 has no fields of TCP
    local rows -- columns of numbers, which take little memory and time
    local count

    function conversations.reset()
        streams, numbers, count = {}, {}, 0
        rows = {
            packet = {}, -- ascending
            identity = {}, correlation = {}, -- to find a message in its packet
            kind = {}, -- key and version of a request, UNMATCHED, or TOKEN
            time = {}, -- of the last byte of a request, or the first byte of a response
            peer = {}, -- row of the response to a request, or of the request
            client_id = {}, text = {},
            acknowledged = {}, -- by the packet of a response whose request was not found
        }
        conversations.topics = {} -- names by id, from all connections
    end
    conversations.reset()

    -- The innermost value of a field in this packet.
    local function last(field)
        local values = {field()}
        return #values > 0 and values[#values].value or nil
    end

    -- Both ends of a connection, the same for both directions.
    local function ends_of(pinfo)
        local from = tostring(pinfo.src) .. " " .. pinfo.src_port
        local to = tostring(pinfo.dst) .. " " .. pinfo.dst_port
        return from < to and from .. " " .. to or to .. " " .. from
    end

    function conversations.stream(pinfo)
        local number = numbers[pinfo.number] or last(stream_field)
        if not number then
            number = ends_of(pinfo)
            numbers[pinfo.number] = number
        end
        local stream = streams[number]
        if not stream then
            stream = {
                pending = {}, unexpected = {}, early = {}, started = {}, skipped = {}, is_framed = {},
                client_tokens = nil, broker_tokens = 0,
            }
            streams[number] = stream
        end
        return stream
    end

    -- The size of the message at a position, with its own 4 bytes; nil if it cannot be one.
    function conversations.size(data, at)
        local size = int32(data, at)
        return size and size >= 4 and size <= MOST_BYTES and size + 4 or nil
    end

    -- The size of the request at the start of these bytes, which is the end of a packet. Where its own
    -- size exceeds them, it is damaged if the fields end with the bytes, or before another request.
    function conversations.request_size(data)
        local size, key, version = conversations.size(data, 1), int16(data, 5), int16(data, 7)
        if size and size > #data and version then
            local stop = messages.contradicted_end(data, size, key, version)
            if stop and (stop > #data or conversations.is_request(data:sub(stop, stop + HEAD))) then
                return stop - 1
            end
        end
        return size
    end

    -- Whether bytes start with a request of a known API, whose fields fit as far as they go.
    function conversations.is_request(data)
        local size, key, version = conversations.size(data, 1), int16(data, 5), int16(data, 7)
        local api = apis[key]
        if not size or not version or not api or version < 0 then
            return false
        elseif version > api.last then
            return key == API_VERSIONS and version <= api.last + NEWER
        end
        return messages.is_request(data, size, key, version)
    end

    local function is_from(pinfo, stream)
        if pinfo.src_port ~= pinfo.dst_port then
            return pinfo.src_port == stream.client_port
        end
        return tostring(pinfo.src) == stream.client
    end

    local function set_client(stream, port, address)
        stream.client_port, stream.client = port, tostring(address)
    end

    -- Decides which end is the client, by the ports of brokers, or else by a request.
    local function find_client(stream, pinfo, data)
        local ports = conversations.ports
        local is_from_broker, is_to_broker = ports[pinfo.src_port], ports[pinfo.dst_port]
        if is_from_broker ~= is_to_broker and conversations.size(data, 1) then
            if is_to_broker then
                set_client(stream, pinfo.src_port, pinfo.src)
            else
                set_client(stream, pinfo.dst_port, pinfo.dst)
            end
        elseif conversations.is_request(data) then
            set_client(stream, pinfo.src_port, pinfo.src)
        end
    end

    -- Whether the rest of the message that started last is missing: with it, these bytes would
    -- start as the message.
    local function is_abandoned(stream, tvb, is_request)
        local started = stream.started[is_request]
        return started and tvb:raw(0, math.min(tvb:len(), #started.head)) ~= started.head
    end

    -- Whether a message starts here. Where the bytes before it are in the capture, its size
    -- suffices; otherwise it must be a request, or respond to one, or fill the bytes exactly.
    local function starts_message(stream, tvb, is_request)
        local is_framed = stream.is_framed[is_request]
        if is_abandoned(stream, tvb, is_request) then
            stream.started[is_request], is_framed = nil, false
        elseif lost_field() then
            is_framed = false
        elseif is_framed then
            return true
        elseif is_framed == nil then
            is_framed = last(sequence_field) == 1
        end
        local data = tvb:raw(0, math.min(tvb:len(), HEAD))
        local size = conversations.size(data, 1)
        if stream.client_tokens or #data < 4 then
            is_framed = true
        elseif not size then
            is_framed = false
        elseif is_request then
            is_framed = is_framed or conversations.is_request(data)
        elseif not is_framed then
            is_framed = stream.pending[int32(data, 5) or ""] ~= nil or size == tvb:reported_len()
        end
        stream.is_framed[is_request] = is_framed
        return is_framed
    end

    -- The direction of these bytes: "request" or "response"; nil if no message starts here.
    function conversations.direction(stream, tvb, pinfo)
        local skipped = stream.skipped[pinfo.number]
        if not pinfo.visited then
            if not stream.client_port then
                find_client(stream, pinfo, tvb:raw(0, math.min(tvb:len(), HEAD)))
            end
            if not stream.client_port or not starts_message(stream, tvb, is_from(pinfo, stream)) then
                skipped = skipped or {}
                skipped[tvb:offset()] = true
                stream.skipped[pinfo.number] = skipped
            end
        end
        if skipped and skipped[tvb:offset()] or not stream.client_port then
            return nil
        end
        return is_from(pinfo, stream) and "request" or "response"
    end

    -- Remembers the first bytes, and the time of the first one, of a message that continues in later
    -- packets.
    function conversations.start(stream, direction, pinfo, tvb, offset)
        local is_request = direction == "request"
        local started = stream.started[is_request] or {time = pinfo.rel_ts}
        started.head = tvb:raw(offset, math.min(tvb:len() - offset, START))
        stream.started[is_request] = started
    end

    -- A queue is a row, or a list of rows if a correlation id repeats before the response.
    local function push(queues, correlation, row)
        local queue = queues[correlation]
        if queue == nil then
            queues[correlation] = row
        elseif type(queue) == "table" then
            queue[#queue + 1] = row
        else
            queues[correlation] = {queue, row}
        end
    end

    local function pop(queues, correlation)
        local queue = queues[correlation]
        if type(queue) ~= "table" then
            queues[correlation] = nil
            return queue
        end
        local row = table.remove(queue, 1)
        if #queue == 0 then
            queues[correlation] = nil
        end
        return row
    end

    local UNMATCHED, TOKEN = -1, -2

    local function request_kind(stream, data)
        if stream.client_tokens and not conversations.is_request(data) then
            stream.client_tokens = stream.client_tokens + 1
            return TOKEN
        end
        stream.client_tokens = nil
        local key, version = int16(data, 5), int16(data, 7)
        return version and key % 65536 * 65536 + version % 65536 or UNMATCHED
    end

    -- Links a response with its request.
    local function response_kind(stream, row, correlation)
        local request = pop(stream.pending, correlation)
        if not request and stream.broker_tokens > 0 then
            stream.broker_tokens = stream.broker_tokens - 1
            return TOKEN
        end
        request = request or pop(stream.unexpected, correlation)
        if not request then
            stream.early[correlation], rows.acknowledged[row] = row, last(raw_ack_field)
            return UNMATCHED
        end
        rows.peer[row], rows.peer[request] = request, row
        return rows.kind[request]
    end

    -- Links a request with a response that was captured before it. The response acknowledges its
    -- request (RFC 9293, 3.4); one that responds to an unseen request with the same id does not.
    local function link_early(stream, row, correlation)
        local response = stream.early[correlation]
        stream.early[correlation] = nil
        local start = response and rows.acknowledged[response] and last(raw_sequence_field)
        if start and rows.kind[row] >= 0 then
            local stop = start + last(length_field)
            if (rows.acknowledged[response] - stop) % 4294967296 < 2147483648 then
                rows.peer[row], rows.peer[response] = response, row
                rows.kind[response], rows.text[response] = rows.kind[row], false
            end
        end
    end

    local function add_row(stream, message, pinfo, identity, correlation)
        local is_request = message.direction == "request"
        local started = stream.started[is_request]
        count = count + 1
        rows.packet[count], rows.identity[count] = pinfo.number, identity
        rows.correlation[count], rows.peer[count] = correlation, false
        rows.client_id[count], rows.text[count] = false, false
        rows.time[count] = not is_request and started and started.time or pinfo.rel_ts
        stream.started[is_request] = nil
        rows.kind[count] = is_request and request_kind(stream, message.data)
            or response_kind(stream, count, correlation)
        if is_request then
            link_early(stream, count, correlation)
        end
        return count
    end

    -- The row of a message in a packet: binary search for the packet, then its messages in turn.
    local function find_row(packet, identity, correlation)
        local low, high = 1, count
        while low < high do
            local middle = math.floor((low + high) / 2)
            if rows.packet[middle] < packet then
                low = middle + 1
            else
                high = middle
            end
        end
        while rows.packet[low] == packet do
            if rows.identity[low] == identity and rows.correlation[low] == correlation then
                return low
            end
            low = low + 1
        end
    end

    -- Adds to a message what the first pass knows of it: row, key, version, packet and latency of
    -- the other message, client id, text.
    function conversations.identify(stream, message, pinfo)
        local tvb, correlation_at = message.tvb, message.direction == "request" and 9 or 5
        local correlation = int32(message.data, correlation_at) or ""
        local identity = tvb:reported_len() * 134217728 + tvb:offset()
        local row
        if pinfo.visited then
            row = find_row(pinfo.number, identity, correlation)
        else
            row = add_row(stream, message, pinfo, identity, correlation)
        end
        message.row, message.correlation = row, correlation
        local kind = row and rows.kind[row] or UNMATCHED
        message.is_token = kind == TOKEN
        if kind >= 0 then
            message.key = wire.signed(math.floor(kind / 65536))
            message.version = wire.signed(kind % 65536)
        end
        local peer = row and rows.peer[row]
        if peer then
            message.peer = rows.packet[peer]
            message.latency = rows.time[row] - rows.time[peer]
            message.client_id = rows.client_id[peer]
        end
        message.text = row and rows.text[row]
    end

    -- Records what the first pass has read of a message. It expects the response to a request;
    -- without acks a broker sends none, but mocks do.
    function conversations.record(stream, message, text)
        local row = message.row
        if not row or rows.text[row] then
            return
        end
        rows.text[row] = text
        if message.direction == "response" then
            return
        end
        rows.client_id[row] = message.client_id or false
        if message.is_token then
            stream.broker_tokens = stream.broker_tokens + 1
            return
        end
        if rows.peer[row] then
            return
        end
        local queues = message.acks == 0 and stream.unexpected or stream.pending
        push(queues, message.correlation, row)
        if message.key == SASL_HANDSHAKE and message.version == 0 then
            stream.client_tokens = 0
        end
    end
end

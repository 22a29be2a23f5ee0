-- Headers of record batches (magic 2), and of the messages of message sets (magic 0 and 1).
do
    local byte = string.byte
    local HEADER = 61 -- bytes of a batch before its records
    local START = 17 -- bytes up to the magic, in all formats
    local ITEMS = 20 -- in the tree, of a batch

    local TIMES = {base_timestamp = true, max_timestamp = true}

    -- Fields with offset and size. crc covers the bytes after it.
    local BATCH = {
        {"base_offset", 0, 8}, {"length", 8, 4}, {"leader_epoch", 12, 4}, {"magic", 16, 1},
        {"crc", 17, 4}, {"attributes", 21, 2}, {"last_offset_delta", 23, 4},
        {"base_timestamp", 27, 8}, {"max_timestamp", 35, 8}, {"producer_id", 43, 8},
        {"producer_epoch", 51, 2}, {"base_sequence", 53, 4}, {"record_count", 57, 4},
    }
    local MESSAGE = {
        {"base_offset", 0, 8}, {"length", 8, 4}, {"crc", 12, 4}, {"magic", 16, 1},
        {"attributes", 17, 1},
    }

    -- Adds a timestamp, with its UTC text if it is between 1970 and 2100.
    local function show_time(tree, name, range)
        local item = tree:add(fields.batch[name], range)
        local seconds = math.floor(range:int64():tonumber() / 1000)
        if seconds >= 0 and seconds < 4102444800 then
            item:append_text(os.date("! (%Y-%m-%d %H:%M:%S UTC)", seconds))
        end
    end

    local function show_fields(tree, tvb, at, list)
        for _, field in ipairs(list) do
            local range = tvb(at - 1 + field[2], field[3])
            if TIMES[field[1]] then
                show_time(tree, field[1], range)
            else
                tree:add(fields.batch[field[1]], range)
            end
        end
    end

    local function show_flag(tree, name, range, value)
        tree:add(fields.batch[name], range, value):set_generated()
    end

    local function show_attributes(tree, range, attributes, magic)
        show_flag(tree, "codec", range, attributes % 8)
        if magic > 0 then
            show_flag(tree, "timestamp_type", range, math.floor(attributes / 8) % 2)
        end
        if magic == 2 then
            show_flag(tree, "is_transactional", range, math.floor(attributes / 16) % 2 == 1)
            show_flag(tree, "is_control", range, math.floor(attributes / 32) % 2 == 1)
        end
    end

    -- The sizes of key and value, which follow the attributes and, with magic 1, the timestamp.
    local function show_sizes(message, tree, at, stop, magic)
        local key_at = at + 18 + (magic == 1 and 8 or 0)
        local inside = {data = message.data, stop = stop, captured = stop}
        local key_size = wire.int32(inside, key_at)
        tree:add(fields.batch.key_size, message.tvb(key_at - 1, 4))
        local value_at = key_at + 4 + math.max(key_size, 0)
        wire.int32(inside, value_at)
        tree:add(fields.batch.value_size, message.tvb(value_at - 1, 4))
    end

    local function show_batch(message, tree, at, stop, magic)
        local tvb = message.tvb
        local item = tree:add(fields.record_batch, tvb(at - 1, stop - at))
        if magic == 2 then
            show_fields(item, tvb, at, BATCH)
            local count = wire.int32(message, at + 57)
            item:set_text("record batch: " .. count .. (count == 1 and " record" or " records"))
            show_attributes(item, tvb(at + 20, 2), byte(message.data, at + 22), magic)
        else
            show_fields(item, tvb, at, MESSAGE)
            item:set_text("message")
            show_attributes(item, tvb(at + 16, 1), byte(message.data, at + 17), magic)
            if magic == 1 then
                show_time(item, "base_timestamp", tvb(at + 17, 8))
            end
            if stop - at > 18 then
                pcall(show_sizes, message, item, at, stop, magic)
            end
        end
    end

    -- The batches between two positions. The last may be incomplete: the limit of a fetch cuts it.
    -- Secret ones are items without the bytes of their records.
    function batches.walk(message, start, stop, tree, is_secret)
        local at = start
        while stop - at >= START and not walker.is_full(message) do
            local magic = byte(message.data, at + 16)
            local size = wire.int32(message, at + 8)
            local least = magic == 2 and HEADER or 18
            if magic > 2 or size + 12 < least
                or stop - at < least + (magic == 1 and 8 or 0) then
                break
            end
            message.items = message.items + ITEMS
            local last = math.min(at + 12 + size, stop)
            show_batch(message, tree, at, is_secret and at + least or last, magic)
            at = at + 12 + size
        end
        local mark = is_secret and stop > start and " [redacted]" or ""
        tree:set_text("records: " .. (stop - start) .. " bytes" .. mark)
        if at < stop then
            tree:append_text(", " .. (stop - at) .. " bytes without a batch header")
        end
    end
end

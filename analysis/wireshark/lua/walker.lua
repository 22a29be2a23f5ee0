-- The walker: reads a message by its layout, and adds an item per field to the tree. In a tree that
-- is not visible, it adds only the fields that the layout needs. If the tree is nil, it only collects
-- facts.
do
    local sub = string.sub
    local FACTS = facts.readers
    local WIDTHS = {
        bool = 1, int8 = 1, int16 = 2, uint16 = 2, int32 = 4, uint32 = 4, int64 = 8, float64 = 8,
        uuid = 16,
    }
    walker.WIDTHS = WIDTHS
    local MASK = "[redacted]"
    local NO_TOPIC = ("A"):rep(22) -- the uuid 0
    local MOST_ITEMS = 100000 -- Wireshark refuses more than a million in a packet.

    -- Whether fields are missing in the tree, because there are too many.
    function walker.is_full(message)
        return message.items > MOST_ITEMS
    end

    -- Methods of Wireshark: to look one up by its name takes a fifth of the time of a call.
    local add_item, range_of

    function walker.bind(tree, tvb)
        add_item, range_of = tree.add, tvb.range
    end

    local function range(message, at, stop)
        return range_of(message.tvb, at - 1, stop - at)
    end

    -- Adds an item for a range of the bytes; nil once the message has too many. Without a value,
    -- Wireshark reads the bytes.
    local function add_range(message, tree, field, bytes, value)
        message.items = message.items + 1
        if message.items > MOST_ITEMS then
            return nil
        elseif value == nil then
            return add_item(tree, field, bytes)
        end
        return add_item(tree, field, bytes, value)
    end

    local function add(message, tree, field, at, stop, value)
        return add_range(message, tree, field, range(message, at, stop), value)
    end

    local function add_null(message, tree, item, at, stop, name)
        local added = add(message, tree, fields.null, at, stop, item.name)
        if added then
            added:set_text(name .. ": null")
        end
    end

    -- Adds the field of all APIs for a role, hidden: filters find it, the tree stays short.
    local function add_common(message, tree, item, bytes, value)
        local added = add_range(message, tree, item.common, bytes, value)
        if added then
            added:set_hidden()
        end
    end

    local function show_value(message, item, at, start, stop, tree, raw, value)
        local shown, bytes
        local has_content = stop > at or item.type == "string"
        local is_secret = has_content and facts.is_secret(message, item, at, stop)
        if is_secret then
            -- No bytes, here and in the structs around it: exports write the bytes of items.
            message.masked = message.masked + 1
            shown = add(message, tree, item.field, start, start, raw and MASK)
        elseif raw and item.type ~= "bytes" and item.type ~= "records" then
            shown = add(message, tree, item.field, start, stop, value)
        elseif raw and SECRET_BYTES[item.role] then
            shown = add(message, tree, item.field, start, stop, wire.hex(raw))
        else
            bytes = range(message, at, stop)
            shown = add_range(message, tree, item.field, bytes)
        end
        if shown and item.common then
            add_common(message, tree, item, bytes or range(message, at, stop), value)
        end
        local topic = item.role == "topic_id" and conversations.topics[value]
        if shown and topic then
            shown:append_text(" (" .. topic .. ")")
            local named = add(message, shown, fields.common.topic, start, stop, topic)
            if named then
                named:set_generated()
            end
        end
        return shown, is_secret
    end

    -- A value that is not a struct.
    local function read_value(message, item, at, tree, nullable, name)
        local width, raw, value = WIDTHS[item.type], nil, nil
        local start, stop = at, nil
        if width then
            stop = wire.after(message, at, width)
            if width == 16 then
                raw = sub(message.data, at, stop - 1)
                value = (tree or item.role) and wire.uuid(raw)
            end
        else
            local plain = item.type == "string" and wire.int16 or wire.int32
            local size
            size, at = wire.length(message, start, plain, item.flexible, nullable)
            if size == nil then
                if tree then
                    add_null(message, tree, item, start, at, name)
                end
                if item.role == "topic" then
                    message.topic = nil
                end
                return at
            end
            stop = wire.after(message, at, size)
            if item.type == "string" or item.role ~= "records" then
                raw = sub(message.data, at, stop - 1)
            end
            value = item.type == "string" and (tree or item.role) and wire.text(raw) or nil
        end
        local shown, is_secret
        if tree then
            shown, is_secret = show_value(message, item, at, start, stop, tree, raw, value)
        end
        if message.is_visible and shown and name ~= item.name then
            shown:prepend_text(name .. " ")
        end
        if message.is_visible and shown and item.labels then
            message.label = item.name .. ": " .. (value or wire[item.type](message, at))
        end
        if FACTS[item.role] then
            FACTS[item.role](message, at, value, shown)
        elseif item.role == "records" and shown then
            batches.walk(message, at, stop, shown, is_secret)
        end
        return stop
    end

    -- The value of is_sensitive, which follows the value of the configuration.
    local function find_sensitive(message, item, at)
        local errors, elements = message.errors, message.elements
        message.is_sensitive, message.errors = nil, {}
        pcall(walker.fields, message, item.fields, at, nil)
        message.errors, message.elements = errors, elements
        return message.is_sensitive
    end

    local function read_struct(message, item, at, tree, start, nullable, name)
        local is_present = true
        if nullable then
            is_present, at = wire.present(message, at, item.is_tagged)
            if not is_present then
                if tree then
                    add_null(message, tree, item, start, at, name)
                end
                return at
            end
        end
        local shown = tree and add(message, tree, item.field, start, at)
        if shown and message.is_visible then
            shown:set_text(name)
        end
        local outer, masked = message.is_sensitive, message.masked
        if item.fields.is_sensitive and tree then
            message.is_sensitive = find_sensitive(message, item, at)
        end
        local stop = walker.fields(message, item.fields, at, shown or nil, shown, name)
        message.is_sensitive = outer
        if message.is_visible and shown and message.masked == masked then
            shown:set_len(stop - start)
        end
        return stop
    end

    local function read_one(message, item, at, tree, start, nullable, name)
        if item.type == "struct" then
            return read_struct(message, item, at, tree, start, nullable, name)
        end
        return read_value(message, item, at, tree, nullable, name)
    end

    local function read_field(message, item, at, tree, start)
        tree = item.is_needed and tree or nil
        if not item.array then
            return read_one(message, item, at, tree, start, item.nullable, item.name)
        end
        local count
        count, at = wire.count(message, at, item.flexible, item.nullable)
        if count == nil then
            if tree then
                add_null(message, tree, item, start, at, item.name)
            end
            return at
        end
        message.elements = message.elements - count
        if message.elements < 0 then
            wire.fail("malformed", start, "too many elements: an array announces " .. count)
        end
        local shown = tree and add(message, tree, item.count, start, at, count)
        if shown and message.is_visible then
            shown:set_text(item.name .. ": " .. count)
        end
        local size = item.fields and item.fields.size or WIDTHS[item.type]
        if not tree and size and not FACTS[item.role] then
            return wire.after(message, at, count * size)
        end
        local masked = message.masked
        for index = 0, count - 1 do
            at = read_one(message, item, at, shown or nil, at, false, "[" .. index .. "]")
        end
        if message.is_visible and shown and message.masked == masked then
            shown:set_len(at - start)
        end
        return at
    end

    -- A tagged section (KIP-482).
    function walker.tags(message, known, at, tree)
        local count, start = nil, at
        count, at = wire.varint(message, at)
        if count > 0 and tree then
            add(message, tree, fields.tagged_fields, start, at, count)
        end
        for _ = 1, count do
            local tag, size
            start = at
            tag, at = wire.varint(message, at)
            size, at = wire.varint(message, at)
            local stop = wire.after(message, at, size)
            local item = known[tag]
            if item then
                at = read_field(message, item, at, tree, start)
                if at ~= stop then
                    wire.fail("malformed", at, item.name .. ": tag " .. tag .. " announces " ..
                        size .. " bytes and takes " .. (size + at - stop))
                end
            elseif tree then
                local first = kafkad.prefs.show_secrets and at or stop  -- it may be secret
                local shown = add(message, tree, fields.unknown_tag, first, stop)
                if shown then
                    shown:prepend_text("tag " .. tag .. " ")
                end
                if shown and first > at then
                    message.masked = message.masked + 1
                    shown:append_text(" " .. size .. " bytes " .. MASK)
                end
            end
            at = stop
        end
        return at
    end

    -- The fields of a body or struct in a tree that is not visible, or without a tree.
    local function skip_fields(message, layout, at, tree)
        local topic, topic_id
        for _, step in ipairs(layout.steps) do
            if type(step) == "number" then
                at = wire.after(message, at, step)
            else
                at = read_field(message, step, at, tree, at)
                if step.role == "topic" then
                    topic = message.topic
                elseif step.role == "topic_id" then
                    topic_id = message.topic_id
                end
            end
        end
        return at, topic, topic_id
    end

    -- The fields of a body or struct, below their visible tree. The first field labels the item of a
    -- struct.
    local function show_fields(message, layout, at, tree, struct, name)
        local topic, topic_id
        for index = 1, #layout do
            local item = layout[index]
            message.label = nil
            at = read_field(message, item, at, tree, at)
            if item.role == "topic" then
                topic = message.topic
            elseif item.role == "topic_id" then
                topic_id = message.topic_id
            end
            if struct and index == 1 and message.label then
                struct:set_text(name .. " " .. message.label)
            end
        end
        return at, topic, topic_id
    end

    -- The fields of a body or struct. `struct`: the item of the struct.
    function walker.fields(message, layout, at, tree, struct, name)
        local read = tree and message.is_visible and show_fields or skip_fields
        local stop, topic, topic_id = read(message, layout, at, tree, struct, name)
        if topic and topic_id and topic_id ~= NO_TOPIC then
            conversations.topics[topic_id] = topic
        end
        if layout.flexible then
            return walker.tags(message, layout.tagged, stop, tree)
        end
        return stop
    end
end

-- Layouts: the fields of one version of one direction, in wire order. They are made from the lines
-- of an API's page when a message needs them.
do
    local WIDTHS = walker.WIDTHS
    local LABELS = {string = true, uuid = true, int32 = true, int16 = true}

    local function is_in(version, range)
        return range ~= nil and version >= range[1] and version <= range[2]
    end

    -- Steps that read a struct in a tree that is not visible: numbers of bytes to skip, and the items
    -- that must be read: their size varies, a filter needs them, or they have a fact. Returns also the
    -- size of a struct that can be skipped as a whole.
    local function steps_of(struct)
        local steps = {}
        for index = 1, #struct do
            local item = struct[index]
            local is_read = item.array or item.is_needed or facts.readers[item.role]
            local width = not is_read and WIDTHS[item.type]
            if item.type == "struct" and not is_read and not item.nullable then
                width = item.fields.size
            end
            if width and type(steps[#steps]) == "number" then
                steps[#steps] = steps[#steps] + width
            else
                steps[#steps + 1] = width or item
            end
        end
        local is_fixed = not struct.flexible and #steps == 1 and type(steps[1]) == "number"
        return steps, is_fixed and steps[1] or nil
    end

    -- Whether Wireshark needs one of the fields of an item, or of the items below it. Asks for each.
    local function is_any_needed(item, is_needed)
        local is_any = item.fields ~= nil and item.fields.is_needed
        for _, group in ipairs({
            {item.field, item.count, item.common},
            item.nullable and {fields.null} or {},
            item.role == "topic_id" and {fields.common.topic} or {}, -- of known ids
            item.type == "records" and {fields.record_batch} or {},
            item.type == "records" and fields.batch or {},
        }) do
            for _, field in pairs(group) do
                is_any = is_needed(field) or is_any
            end
        end
        return is_any
    end

    -- is_needed: whether a filter, a column or the details need a field of Wireshark.
    local function layout(lines, start, version, flexible, is_needed)
        local made = {flexible = flexible, tagged = {}, is_needed = false}
        if flexible then
            for _, field in ipairs({fields.tagged_fields, fields.unknown_tag}) do
                made.is_needed = is_needed(field) or made.is_needed
            end
        end
        for index = start, #lines do
            local line = lines[index]
            if version >= line[3] and version <= line[4] then
                local item = {
                    name = line[1], type = line[2], array = line.array, role = line.role,
                    nullable = is_in(version, line.null), flexible = flexible,
                    is_tagged = line.tag ~= nil, field = line.field, count = line.count,
                    common = fields.common[line.role],
                }
                if line[2] == "struct" then
                    item.fields = layout(line, 5, version, flexible, is_needed)
                end
                item.is_needed = is_any_needed(item, is_needed)
                made.is_needed = made.is_needed or item.is_needed
                if line.tag then
                    made.tagged[line.tag] = item
                else
                    made[#made + 1] = item
                    item.labels = #made == 1 and LABELS[item.type] and not item.array
                        and not SECRET_BYTES[item.role]
                end
                made[line.role or ""] = true
                made.has_facts = made.has_facts or facts.readers[line.role] ~= nil
                    or (item.fields and item.fields.has_facts)
            end
        end
        made.steps, made.size = steps_of(made)
        return made
    end

    -- The layout of a body with the fields that Wireshark needs: all of them in a visible tree,
    -- otherwise those of filters and columns. `made` itself if it needs none.
    function layouts.in_tree(made, tree, is_visible)
        local name, needed, referenced = is_visible and "all" or "", {}, tree.referenced
        for index, field in ipairs(is_visible and {} or made.proto_fields) do
            if referenced(tree, field) then
                name, needed[field] = name .. " " .. index, true
            end
        end
        if not made.others[name] then
            made.others[name] = made.make(function(field)
                return is_visible or needed[field] or false
            end)
            made.others[name].header = made.header
        end
        return made.others[name]
    end

    -- The layout of a body; nil for an unknown API or version. direction: "request", "response".
    function layouts.of(key, direction, version)
        local api = apis[key]
        if not api or version < api.first or version > api.last then
            return nil
        end
        local made = api.layouts or {request = {}, response = {}}
        api.layouts = made
        if not made[direction][version] then
            local flexible = is_in(version, api.flexible)
            local function make(is_needed)
                return layout(api[direction], 1, version, flexible, is_needed)
            end
            local proto_fields, seen = {}, {}
            local found = make(function(field)
                if not seen[field] then
                    proto_fields[#proto_fields + 1], seen[field] = field, true
                end
                return false
            end)
            found.make, found.proto_fields, found.others = make, proto_fields, {[""] = found}
            found.header = (direction == "request" and 1 or 0) + (flexible and 1 or 0)
            local rule = api[direction .. "_header"]
            if rule and version >= rule[2] and version <= rule[3] then
                found.header = rule[1]
            end
            made[direction][version] = found
        end
        return made[direction][version]
    end
end

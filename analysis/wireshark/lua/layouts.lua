-- Layouts: the fields of one version of one direction, in wire order. They are made from the lines
-- of an API's page when a message needs them.
do
    local WIDTHS = walker.WIDTHS
    local LABELS = {string = true, uuid = true, int32 = true, int16 = true}

    local function is_in(version, range)
        return range ~= nil and version >= range[1] and version <= range[2]
    end

    -- Steps that read a struct when nothing of it is shown: numbers of bytes to skip, and the items
    -- that must be read, because their size varies or they have a fact. Returns also the size of a
    -- struct that can be skipped as a whole.
    local function steps_of(struct)
        local steps = {}
        for index = 1, #struct do
            local item = struct[index]
            local width = not item.array and not facts.readers[item.role] and WIDTHS[item.type]
            if item.type == "struct" and not item.array and not item.nullable then
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

    local function append(list, values)
        for _, field in pairs(values) do
            list[#list + 1] = field
        end
    end

    -- proto_fields: gets the fields of Wireshark that the struct may have.
    local function layout(lines, start, version, flexible, proto_fields)
        local made = {flexible = flexible, tagged = {}}
        for index = start, #lines do
            local line = lines[index]
            if version >= line[3] and version <= line[4] then
                local item = {
                    name = line[1], type = line[2], array = line.array, role = line.role,
                    nullable = is_in(version, line.null), flexible = flexible,
                    is_tagged = line.tag ~= nil, field = line.field, count = line.count,
                    common = fields.common[line.role],
                }
                append(proto_fields, {item.field, item.count, item.common})
                if line[2] == "struct" then
                    item.fields = layout(line, 5, version, flexible, proto_fields)
                elseif line[2] == "records" then
                    append(proto_fields, fields.batch)
                elseif line.role == "topic_id" then
                    append(proto_fields, {fields.common.topic}) -- of known ids
                end
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

    -- Whether a filter, a column or the details need a field of a body.
    function layouts.is_referenced(layout, tree)
        for _, field in ipairs(layout.proto_fields) do
            if tree:referenced(field) then
                return true
            end
        end
        return false
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
            local proto_fields = {
                fields.null, fields.tagged_fields, fields.unknown_tag, fields.record_batch,
            }
            local found = layout(api[direction], 1, version, flexible, proto_fields)
            found.proto_fields = proto_fields
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

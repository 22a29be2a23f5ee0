-- Readers of single values. A reader takes a message and a position, and returns the value and the
-- position after it. Positions count from 1, as in Lua strings; message.stop is the position after
-- the message, message.captured the position after its captured bytes.
do
    local byte, sub, find, floor = string.byte, string.sub, string.find, math.floor

    -- Ends the decoding of a message. kind: "malformed", or "cut" if the capture lacks the bytes.
    function wire.fail(kind, at, text)
        error({kind = kind, at = at, text = text}, 0)
    end

    -- The position after `size` bytes, which must be in the message and in the capture.
    function wire.after(message, at, size)
        local stop = at + size
        if stop > message.stop then
            local left = message.stop - at
            wire.fail("malformed", at, size .. " bytes are needed and " .. left .. " are left")
        elseif stop > message.captured then
            wire.fail("cut", at, "the packet was cut when it was captured")
        end
        return stop
    end

    function wire.int8(message, at)
        local stop = wire.after(message, at, 1)
        local value = byte(message.data, at)
        return value < 128 and value or value - 256, stop
    end

    -- A number of 16 bits, read as signed.
    function wire.signed(value)
        return value < 32768 and value or value - 65536
    end

    -- Signed numbers in bytes, of 16 and 32 bits; nil where bytes are missing.
    function wire.short(data, at)
        local high, low = byte(data, at, at + 1)
        return low and wire.signed(high * 256 + low)
    end

    function wire.int(data, at)
        local a, b, c, d = byte(data, at, at + 3)
        local value = d and ((a * 256 + b) * 256 + c) * 256 + d
        return value and a >= 128 and value - 4294967296 or value
    end

    function wire.int16(message, at)
        local stop = wire.after(message, at, 2)
        return wire.short(message.data, at), stop
    end

    function wire.int32(message, at)
        local stop = wire.after(message, at, 4)
        return wire.int(message.data, at), stop
    end

    -- Seven bits per byte, lowest first; at most five bytes.
    function wire.varint(message, at)
        local value, factor = 0, 1
        for index = at, at + 4 do
            wire.after(message, index, 1)
            local part = byte(message.data, index)
            if part < 128 then
                return value + part * factor, index + 1
            end
            value, factor = value + (part - 128) * factor, factor * 128
        end
        wire.fail("malformed", at, "a varint of more than five bytes")
    end

    -- A length or count; nil for null. `plain` reads it in versions that are not flexible.
    function wire.length(message, at, plain, flexible, nullable)
        local value, stop
        if flexible then
            value, stop = wire.varint(message, at)
            value = value - 1
        else
            value, stop = plain(message, at)
        end
        if value >= 0 then
            return value, stop
        elseif value < -1 then
            wire.fail("malformed", at, "a length of " .. value)
        elseif not nullable then
            wire.fail("malformed", at, "null in a field that is not nullable")
        end
        return nil, stop
    end

    -- The number of elements of an array; nil for null. An element takes at least one byte.
    function wire.count(message, at, flexible, nullable)
        local count, stop = wire.length(message, at, wire.int32, flexible, nullable)
        if count and count > message.stop - stop then
            local left = message.stop - stop
            wire.fail("malformed", at, count .. " elements are announced and " .. left ..
                " bytes are left")
        end
        return count, stop
    end

    -- Whether a nullable struct is present: an int8, or a varint in a tagged field (KIP-893).
    function wire.present(message, at, is_tagged)
        local mark, stop
        if is_tagged then
            mark, stop = wire.varint(message, at)
        else
            mark, stop = wire.int8(message, at)
        end
        if mark ~= 1 and mark ~= (is_tagged and 0 or -1) then
            wire.fail("malformed", at, "invalid nullable-struct marker " .. mark)
        end
        return mark == 1, stop
    end

    local DIGITS = {}
    for digit in ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"):gmatch(".") do
        DIGITS[#DIGITS + 1] = digit
    end

    local function digits(number, shifts)
        local text = ""
        for _, shift in ipairs(shifts) do
            text = text .. DIGITS[floor(number / shift) % 64 + 1]
        end
        return text
    end

    -- Kafka's text of a uuid: base64url without padding, 22 characters.
    function wire.uuid(raw)
        local text = ""
        for index = 1, 13, 3 do
            local a, b, c = byte(raw, index, index + 2)
            text = text .. digits(a * 65536 + b * 256 + c, {262144, 4096, 64, 1})
        end
        return text .. digits(byte(raw, 16) * 16, {64, 1})
    end

    function wire.hex(raw)
        return (raw:gsub(".", function(each) return ("%02x"):format(byte(each)) end))
    end

    -- The size of the UTF-8 character at a position; nil if the bytes are not one (RFC 3629).
    local function character(raw, at)
        local first, second = byte(raw, at, at + 1)
        if first >= 1 and first < 0x80 then
            return 1
        elseif first >= 0xC2 and first <= 0xDF and find(raw, "^[\128-\191]", at + 1) then
            return 2
        elseif first >= 0xE0 and first <= 0xEF and find(raw, "^[\128-\191][\128-\191]", at + 1) then
            local is_valid = (first ~= 0xE0 or second >= 0xA0) and (first ~= 0xED or second < 0xA0)
            return is_valid and 3 or nil
        elseif first >= 0xF0 and first <= 0xF4
            and find(raw, "^[\128-\191][\128-\191][\128-\191]", at + 1) then
            local is_valid = (first ~= 0xF0 or second >= 0x90) and (first ~= 0xF4 or second < 0x90)
            return is_valid and 4 or nil
        end
    end

    -- Text that Wireshark can show: bytes that are not UTF-8, and zeros, become \xNN.
    function wire.text(raw)
        if not find(raw, "[^\1-\127]") then
            return raw
        end
        local parts, at = {}, 1
        while at <= #raw do
            local size = character(raw, at)
            parts[#parts + 1] = size and sub(raw, at, at + size - 1)
                or ("\\x%02x"):format(byte(raw, at))
            at = at + (size or 1)
        end
        return table.concat(parts)
    end
end

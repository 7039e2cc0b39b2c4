-- A running sum for each sequence.
--
-- A request is a decimal integer, as plain text or as JSON: {"input": 5}. The
-- answer is the sum so far, as text. 0 ends the sequence: the answer is its last
-- total, and the next request with the same id begins a new one.

local M = { api = 1, state_schema = 1 }

function M.init(seq)
    return { total = 0 }
end

-- The integer that the request asks to add, or nil and why not.
local function read_number(req)
    local text = req.text:match("^%s*([+-]?%d+)%s*$")
    if text then
        return math.tointeger(text), "the integer does not fit in 64 bits"
    end
    if req.text:match("^%s*{") then
        return math.type(req.json.input) == "integer" and req.json.input,
            'the JSON must have an integer: {"input": 5}'
    end
    return nil, 'send a decimal integer, as text or as {"input": 5}'
end

function M.step(state, req)
    local number, problem = read_number(req)
    if not number then
        return nil, problem, 400 -- the client hears it; the total stays as it was
    end
    if number == 0 then
        return { text = state.total, end_sequence = true }
    end
    local total = state.total + number
    if (number > 0) ~= (total > state.total) then -- Lua's integers wrap around
        return nil, "the total would not fit in 64 bits", 400
    end
    state.total = total
    return { text = total }
end

return M

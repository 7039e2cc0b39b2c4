-- A running sum for each sequence.
--
-- A request is a decimal integer, as plain text or as JSON: {"input": 5}. The
-- answer is the sum so far, as text. 0 ends the sequence: the answer is its last
-- total, and the next request with the same id begins a new one.
--
-- With continuousBatching in the model's YAML it does what TorchServe's example of that name does: an
-- odd number streams the new total, at once and then once a second, ten more times (not the first
-- request of a sequence, which gets a plain answer); -1 cancels the streams of its sequence.

local M = { api = 1, state_schema = 1 }

local streams = false
local pieces, seconds = 11, 1.0

function M.load(ctx)
    local stream = ctx.config.handler and ctx.config.handler.stream or {}
    streams = ctx.config.continuousBatching or false
    pieces = stream.pieces or pieces
    seconds = stream.seconds or seconds
end

function M.init(seq)
    return { total = 0 }
end

-- The total in pieces, until they are all out or the stream is to end: its client has gone, -1 or 0
-- came, or its time is up. The state is not touched: the step was committed with the first piece.
local function stream_total(total)
    for _ = 1, pieces - 1 do
        if not coroutine.yield({ text = total }, seconds) then
            return { text = "" }
        end
    end
    return { text = total }
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
    if number == -1 and streams then
        return { text = -1, stop_streams = true }
    end
    local total = state.total + number
    if (number > 0) ~= (total > state.total) then -- Lua's integers wrap around
        return nil, "the total would not fit in 64 bits", 400
    end
    state.total = total
    if streams and number % 2 == 1 and not req.start then
        return stream_total(total)
    end
    return { text = total }
end

return M

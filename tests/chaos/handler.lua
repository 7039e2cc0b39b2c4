-- The model of the chaos test: a sum whose answers tell everything a client must know.
--   +N  adds N and counts one step
--   ~N  the same, and the answer comes in pieces: two dots, then what +N answers
--   ?   changes nothing
--   =N  keeps N bytes of padding, to fill the store
-- Each answers "SUM STEPS ORDER". ORDER depends on the order of the steps, which a sum would hide.
-- Versions differ in state_schema (the test fills it in), so that a swap runs migrate.
local M = { api = 1, state_schema = SCHEMA }

function M.init()
    return { sum = 0, steps = 0, order = 0, padding = "" }
end

function M.step(state, req)
    local command, digits = req.body:match("^([+~?=])(%d*)$")
    local number = math.tointeger(tonumber(digits))
    if (command == "+" or command == "~") and number then
        state.sum = state.sum + number
        state.steps = state.steps + 1
        state.order = (state.order * 31 + number) % 2147483647
        if command == "~" then
            coroutine.yield(".")
            coroutine.yield(".")
        end
    elseif command == "=" and number then
        state.padding = string.rep("x", number)
    elseif command ~= "?" then
        return nil, "send +N, ~N, =N or ?", 400
    end
    return { text = ("%d %d %d"):format(state.sum, state.steps, state.order) }
end

function M.migrate(state)
    return state
end

return M

-- The model of the chaos test: a sum whose answers tell everything a client must know.
--   +N  adds N and counts one step
--   ?   changes nothing
--   =N  keeps N bytes of padding, to fill the store
-- Each answers "SUM STEPS ORDER". ORDER depends on the order of the steps, which a sum would hide.
local M = { api = 1 }

function M.init()
    return { sum = 0, steps = 0, order = 0, padding = "" }
end

function M.step(state, req)
    local command, digits = req.body:match("^([+?=])(%d*)$")
    local number = math.tointeger(tonumber(digits))
    if command == "+" and number then
        state.sum = state.sum + number
        state.steps = state.steps + 1
        state.order = (state.order * 31 + number) % 2147483647
    elseif command == "=" and number then
        state.padding = string.rep("x", number)
    elseif command ~= "?" then
        return nil, "send +N, =N or ?", 400
    end
    return { text = ("%d %d %d"):format(state.sum, state.steps, state.order) }
end

return M

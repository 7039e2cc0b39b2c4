local M = { api = 1 }

function M.init(seq)          -- the state of a new sequence
    return { sum = 0 }
end

function M.step(state, req)   -- one step: changes the state and returns the answer
    local x = tonumber(req.body)
    if not x then
        return nil, "send a number", 400
    end
    state.sum = state.sum + x
    return { text = state.sum }
end

return M

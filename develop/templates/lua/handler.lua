local M = { api = 1 }

-- Returns the state of a new sequence: a plain table, which the server stores after each step.
function M.init(seq)
    return { count = 0, mean = 0.0 }
end

-- Does one step of a sequence: changes the state in place and returns the answer.
function M.step(state, req)
    local x = tonumber(req.body)
    if not x then
        return nil, "send a number", 400 -- the client gets this error, and the state stays as it was
    end
    state.count = state.count + 1
    state.mean = state.mean + (x - state.mean) / state.count
    return { json = { count = state.count, mean = state.mean } }
end

return M

-- A running sum over tensors: START sets it to the input, each further step adds to it.
local M = { api = 1 }

function M.init()
    return { total = 0 }
end

function M.step(state, req)
    state.total = state.total + req.inputs.INPUT.values[1]
    return { outputs = { OUTPUT = { datatype = "INT32", shape = { 1 }, data = { state.total } } } }
end

return M

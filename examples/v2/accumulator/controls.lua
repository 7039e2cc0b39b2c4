-- The running sum by control tensors, as models of Triton's sequence batcher know them: START says that
-- the sum begins with this input, READY that there is a row at all. What the sum belongs to is the state.
local M = { api = 1 }

function M.step(state, req)
    local inputs = req.inputs
    if inputs.READY.values[1] == 0 then
        return { outputs = { OUTPUT = { datatype = "INT32", shape = { 1, 1 }, data = { 0 } } } }
    end
    local value = inputs.INPUT.values[1]
    state.total = inputs.START.values[1] == 1 and value or state.total + value
    return { outputs = { OUTPUT = { datatype = "INT32", shape = { 1, 1 }, data = { state.total } } } }
end

return M

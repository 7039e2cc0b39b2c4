-- A running sum whose state is a tensor: the model's YAML declares it, the server keeps it.
-- Each step gets what the step before left and puts out what the next one is to find.
local function int32(value)
    return { datatype = "INT32", shape = { 1 }, data = { value } }
end

return {
    api = 1,
    handle = function(req)
        local total = req.inputs.TOTAL_IN.values[1] + req.inputs.INPUT.values[1]
        return { outputs = { OUTPUT = int32(total), TOTAL_OUT = int32(total) } }
    end,
}

-- Repeats the elements of IN, one response each, each DELAY[i] ms after the one before it. The handler
-- returns at once: timers answer, so that the requests of many clients go on side by side.
local M = { api = 1 }

local DAY_MS = 86400000 -- continuo.after takes no more

local function number_of(datatype, value)
    return { datatype = datatype, shape = { 1 }, data = { value } }
end

function M.handle(req)
    local values, delays = req.inputs.IN.values, req.inputs.DELAY.values
    local wait = req.inputs.WAIT and req.inputs.WAIT.values[1] or 0
    local n, i, stopped = #values, 0, false
    if #delays ~= n then
        return nil, "IN and DELAY must have the same number of elements", 400
    end
    for k = 1, n do
        if delays[k] + (k == 1 and wait or 0) > DAY_MS then
            return nil, "a delay of " .. delays[k] .. " ms; a day is the most", 400
        end
    end
    if n == 0 then
        req:finish() -- no response, and that is all
        return
    end

    local function next_one()
        if stopped then
            return
        end
        i = i + 1
        req:respond({ outputs = { OUT = number_of("INT32", values[i]), IDX = number_of("UINT32", i - 1) } })
        if i == n then
            req:finish()
        else
            continuo.after(delays[i + 1] / 1000, next_one)
        end
    end

    req:defer(function(_, reason)
        stopped = true
        continuo.log("info", "repeat stops: " .. reason .. " after " .. i)
        req:finish()
    end)
    continuo.after((wait + delays[1]) / 1000, next_one)
end

return M

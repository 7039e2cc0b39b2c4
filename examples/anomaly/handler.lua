-- How unusual is this value? An anomaly score for each step of a measured series.
--
-- The state of a sequence is an exponentially weighted mean and variance: three
-- numbers, however long the series. The score is the distance from the mean in
-- standard deviations, judged before the value itself is taken in.

local M = { api = 1, state_schema = 1 }

local settings = { alpha = 0.05, threshold = 3.0, warmup = 30 }

function M.load(ctx)
    local given = ctx.config.handler or {}
    for name in pairs(settings) do
        settings[name] = given[name] or settings[name]
    end
    if settings.alpha <= 0 or settings.alpha >= 1 then
        error("handler.alpha must be between 0 and 1, got " .. settings.alpha)
    end
end

function M.init(seq)
    return { count = 0, mean = 0.0, variance = 0.0 }
end

-- The number in "12.8" or {"value": 12.8}, or nil.
local function read_value(req)
    local value = tonumber(req.text)
    if not value and req.text:match("^%s*{") then
        value = req.json.value
    end
    if math.type(value) and math.abs(value) < 1e100 then -- not nan; and its square is finite, too
        return value + 0.0
    end
end

local function round(x)
    return tonumber(("%.3f"):format(x))
end

function M.step(state, req)
    local value = read_value(req)
    if not value then
        return nil, 'send a number below 1e100, as text or as {"value": 12.8}', 400
    end

    local distance = value - state.mean
    local deviation = math.sqrt(state.variance)
    local score = 0.0
    if state.count >= settings.warmup and deviation > 0 then
        score = distance / deviation
    end

    if state.count == 0 then
        state.mean = value
    else
        local alpha = settings.alpha
        state.mean = state.mean + alpha * distance
        state.variance = (1 - alpha) * (state.variance + alpha * distance * distance)
    end
    state.count = state.count + 1

    return {
        json = {
            count = state.count,
            value = value,
            score = round(score),
            anomaly = math.abs(score) >= settings.threshold,
            mean = round(state.mean),
            deviation = round(math.sqrt(state.variance)),
        },
    }
end

return M

-- Where speech begins and ends in a stream of sound, by silero-vad.
--
-- A request is 16-bit PCM at 16 kHz (little-endian, one channel), in pieces of any size, as microphones
-- and telephone lines give them; an empty one is fine. The answer is JSON: the probability of each window
-- of 512 samples that the piece has completed, and what was heard: {"speech": "begin", "at": 1.24}.
--
-- The model wants windows of floats, with the last 64 samples of the window before in front, and its own
-- state as an argument: all that is Lua's business here.

local M = { api = 1 }

local RATE, WINDOW, CONTEXT = 16000, 512, 64

local model
local begin_over, end_below, silence = 0.5, 0.35, 0.2

local function zeros(shape, n)
    return { datatype = "FP32", shape = shape, data = ("\0"):rep(4 * n) }
end

function M.load(ctx)
    local options = ctx.config.handler or {}
    begin_over, end_below = options.begin or begin_over, options["end"] or end_below
    silence = options.silence or silence
    model = torch.load("silero_vad.jit", { submodule = "_model" })
    for _ = 1, 3 do -- the first calls of a module are slow
        model:run { zeros({ 1, CONTEXT + WINDOW }, CONTEXT + WINDOW), zeros({ 2, 1, 128 }, 256) }
    end
end

function M.init(seq)
    return { rest = "", context = ("\0"):rep(4 * CONTEXT), h = zeros({ 2, 1, 128 }, 256),
             windows = 0, quiet = 0, speaking = false }
end

-- 512 samples of 16 bits as floats from -1 to 1.
local function floats(pcm)
    local samples = continuo.array(pcm, "i16"):table()
    for i = 1, #samples do
        samples[i] = samples[i] / 32768
    end
    return continuo.array(samples, "f32"):bytes()
end

local function probability(state, pcm)
    local audio = state.context .. floats(pcm)
    local prob
    prob, state.h = model:run { { datatype = "FP32", shape = { 1, CONTEXT + WINDOW }, data = audio }, state.h }
    state.context = audio:sub(-4 * CONTEXT)
    return prob.values[1]
end

-- What the window says that wasn't known before it, or nil.
local function hear(state, prob)
    local window = WINDOW / RATE
    state.windows = state.windows + 1
    if prob >= begin_over then
        state.quiet = 0
        if not state.speaking then
            state.speaking = true
            return { speech = "begin", at = (state.windows - 1) * window }
        end
    elseif state.speaking and prob < end_below then
        state.quiet = state.quiet + 1
        if state.quiet * window >= silence then
            state.speaking = false
            return { speech = "end", at = (state.windows - state.quiet) * window }
        end
    end
end

function M.step(state, req)
    local pcm = state.rest .. req.body
    local probs, events = continuo.json.array(), continuo.json.array()
    local at = 1
    while #pcm - at + 1 >= 2 * WINDOW do
        local prob = probability(state, pcm:sub(at, at + 2 * WINDOW - 1))
        probs[#probs + 1] = prob
        events[#events + 1] = hear(state, prob)
        at = at + 2 * WINDOW
    end
    state.rest = pcm:sub(at)
    return { json = { probs = probs, events = events } }
end

return M

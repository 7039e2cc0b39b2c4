-- Goes on with a text: the next word is the one that followed the last word most often, in the text so
-- far. Small as it is, it streams as large generators do: a word at a time, until a limit, a dead end, or
-- until its client goes away.
local M = { api = 1 }
local default_tokens = 16

function M.load(ctx)
    default_tokens = ctx.config.handler.tokens
end

local function words_of(text)
    local words = {}
    for word in text:gmatch("%S+") do
        words[#words + 1] = word
    end
    return words
end

-- Returns the most frequent word; if several are equally frequent, the one that came first.
local function next_word(words)
    local counts, best = {}, nil
    for i = 1, #words - 1 do
        if words[i] == words[#words] then
            local follower = words[i + 1]
            counts[follower] = (counts[follower] or 0) + 1
            if not best or counts[follower] > counts[best] then
                best = follower
            end
        end
    end
    return best
end

local function value(req, name, otherwise)
    local input = req.inputs[name]
    if input == nil then
        return otherwise
    end
    return input.values[1]
end

local function output(text)
    return { outputs = { text_output = { datatype = "BYTES", shape = { 1 }, data = { text } } } }
end

function M.handle(req)
    local words = words_of(value(req, "text_input"))
    local limit, rest = value(req, "max_tokens", default_tokens), value(req, "seconds", 0)
    local streams = value(req, "stream", 0)
    local made = {}
    streams = streams == true or streams == 1

    if #words == 0 then
        return nil, "text_input is empty: there is nothing to go on with", 400
    elseif not (rest >= 0 and rest <= 86400) then
        return nil, "seconds is " .. rest .. "; it must be from 0 to 86400", 400
    end
    while #made < limit do
        local word = next_word(words)
        if not word then
            break
        end
        words[#words + 1], made[#made + 1] = word, word
        local go_on, why = coroutine.yield(streams and output(word) or nil, rest)
        if not go_on then
            continuo.log("info", "generate stops: " .. why .. " after " .. #made .. " words")
            return req:finish()
        end
    end
    if streams then
        return req:finish()
    end
    return output(table.concat(made, " "))
end

return M

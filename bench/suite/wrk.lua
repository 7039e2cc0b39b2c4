-- bench/suite/wrk.lua - what wrk sends: steps of a counter. bench/suite/wrk.py runs it.
--
-- Each thread of wrk goes through sequences of its own, one after the other, and adds 1 to each. wrk cannot say which
-- connection a request is for, so a sequence belongs to no connection.

local threads = 0

function setup(thread)
    thread:set("number", threads)
    threads = threads + 1
end

function init(args)
    local path, run, sequences = args[1], args[2], tonumber(args[3])
    steps, at = {}, 0
    for i = 1, sequences do
        local id = ("%s-%d-%d"):format(run, number, i)
        steps[i] = wrk.format("POST", path, { ["ts-request-sequence-id"] = id, ["Connection"] = "keep-alive" }, "1")
    end
end

function request()
    at = at % #steps + 1
    return steps[at]
end

function done(summary, latency, requests)
    local errors = summary.errors
    io.write(("\n{\"steps\": %d, \"seconds\": %.6f, \"status_errors\": %d, \"socket_errors\": %d, "):format(
        summary.requests, summary.duration / 1e6, errors.status,
        errors.connect + errors.read + errors.write + errors.timeout))
    io.write(("\"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f}\n"):format(
        latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency:percentile(99.9) / 1e3))
end

/* Tests the Lua runtime through its functions: requests, replies, errors, limits, sandbox,
 * batches. */
#include "handlers/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log/log.h"
#include "core/test_support.h"
#include "handlers/c/testdata/fake_row.h"

static char dir[TEST_DIR_MAX];
static struct cn_load load;

static int
open_source(const char *source, const char *config, struct cn_runtime **rt, struct cn_error *err)
{
    test_dir_write(dir, "handler.lua", source);
    return cn_lua_runtime_ops.open(&load, cn_str_from(config), rt, err);
}

/* Returns a runtime for a handler that must load. */
static struct cn_runtime *
must_open(const char *source)
{
    struct cn_runtime *rt = NULL;
    struct cn_error err = {0};

    if (open_source(source, "{\"handler\":{\"rate\":0.5,\"none\":null}}", &rt, &err) != 0)
        fail_msg("%s", err.message);
    return rt;
}

/* Returns the load error of a handler that must not load. */
static const char *
load_error(const char *source)
{
    static struct cn_error err;
    struct cn_runtime *rt;

    assert_int_equal(open_source(source, "", &rt, &err), CN_E_LOAD_FAILED);
    return err.message;
}

/* Returns the reply of a handler whose step is `body`, to one request. */
static const char *
reply_of(const char *body, const char *request)
{
    static struct fake fake;
    char source[4000];
    struct cn_runtime *rt;

    memset(&fake, 0, sizeof(fake));
    snprintf(source, sizeof(source), "return { step = function(state, req)\n%s\nend }", body);
    rt = must_open(source);
    fake_step(rt, &fake, request);
    rt->ops->state_free(rt, fake.item.state);
    rt->ops->close(rt);
    return fake.text;
}

static int
setup(void **state)
{
    (void)state;
    cn_log_set_level(CN_LOG_ERROR);
    test_dir_make(dir);
    load = (struct cn_load){.model_name = "m",
                            .model_version = "1.0",
                            .model_dir = dir,
                            .handler = "handler.lua",
                            .config_file = "",
                            .runtime = "lua",
                            .store_dir = "",
                            .worker_index = 3,
                            .stateful = 1,
                            .state_max_bytes = 100000,
                            .memory_max_bytes = 4 << 20};
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    return test_dir_remove(dir);
}

#define COUNTER                                                                                    \
    "local M = { state_schema = 2 }\n"                                                             \
    "function M.init(seq) return { sum = 0, id = seq.sequence_id } end\n"                          \
    "function M.step(state, req)\n"                                                                \
    "  local n = math.tointeger(req.text)\n"                                                       \
    "  state.sum = state.sum + (n or 1000)\n"                                                      \
    "  if not n then return nil, 'no integer', 400 end\n"                                          \
    "  return state.sum\n"                                                                         \
    "end\n"

/* The state continues from step to step, and in another worker. This is what the server is for. */
static void
state_goes_on(void **state)
{
    struct cn_runtime *rt = must_open(COUNTER "return M");
    struct fake fake = {0};
    struct cn_error err;

    (void)state;
    assert_string_equal(fake_step(rt, &fake, "5"), "5");
    assert_string_equal(fake_step(rt, &fake, "7"), "12");
    assert_int_equal(fake_move(rt, &fake, &err), 0);
    assert_string_equal(fake_step(rt, &fake, "-2"), "10");
    assert_int_equal(rt->ops->state_schema(rt), 2);
    assert_memory_equal(rt->ops->describe(rt), "Lua 5.4", 7);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* A refusal reaches the client with the handler's message and status. */
static void
refusals_have_status_and_message(void **state)
{
    (void)state;
    assert_string_equal(reply_of("return nil, 'x must be >= 0', 400", ""),
                        "bad_request/400 x must be >= 0");
    assert_string_equal(reply_of("return nil, 'no such user', 404", ""),
                        "not_found/404 no such user");
    assert_string_equal(reply_of("return nil, 'tea\\npot', 418", ""), "bad_request/418 tea");
    assert_string_equal(reply_of("return nil, 'gpu gone'", ""),
                        "handler_failed/0 Prediction failed: gpu gone");
    assert_string_equal(reply_of("error({status = 422, message = 'bad x'})", ""),
                        "bad_request/422 bad x");
    assert_string_equal(reply_of("req:fail('slow down', 429)", ""), "bad_request/429 slow down");
    assert_string_equal(reply_of("return nil, 'x', 200", ""),
                        "handler_failed/0 Prediction failed: the status of a refusal must be from "
                        "400 to 599, got 200");
}

/* A status outside 400..599 is reported with its value, whichever way the handler refused. */
static void
a_refusals_status_is_checked(void **state)
{
    (void)state;
    assert_string_equal(reply_of("return nil, 'x', 1e300", ""),
                        "handler_failed/0 Prediction failed: the status of a refusal must be from "
                        "400 to 599, got 1e+300");
    assert_string_equal(reply_of("return nil, 'x', 'y'", ""),
                        "handler_failed/0 Prediction failed: the status of a refusal must be from "
                        "400 to 599, got y");
    assert_string_equal(reply_of("error({ status = 'y', message = 'x' })", ""),
                        "handler_failed/0 Prediction failed: handler.lua raised a table: the "
                        "status of a refusal must be from 400 to 599, got y");
    assert_string_equal(reply_of("error({ status = 200, message = 'x' })", ""),
                        "handler_failed/0 Prediction failed: handler.lua raised a table: the "
                        "status of a refusal must be from 400 to 599, got 200");
    assert_string_equal(reply_of("return nil, 'x', 404.0", ""), "not_found/404 x");
}

/* A bug in a handler is reported with file and line, and fails only that item. */
static void
errors_name_file_and_line(void **state)
{
    struct cn_runtime *rt;
    struct fake fake = {0};

    (void)state;
    assert_string_equal(reply_of("local t = nil\nreturn t.x", ""),
                        "handler_failed/0 Prediction failed: handler.lua:3: attempt to index a nil "
                        "value (local 't')");
    assert_string_equal(reply_of("error({})", ""),
                        "handler_failed/0 Prediction failed: handler.lua raised a table: it has no "
                        "message");
    assert_string_equal(reply_of("error('a\\xff\\n b')", ""),
                        "handler_failed/0 Prediction failed: handler.lua:2: a?");
    assert_string_equal(
        reply_of("return nil", ""),
        "handler_failed/0 Prediction failed: handler.lua: step(state, req) returned "
        "nothing: return a reply, or nil and a message");
    assert_string_equal(reply_of("return function() end", ""),
                        "handler_failed/0 Prediction failed: a reply must be a string, a number or "
                        "a table such as { json = ... }, got function");
    load.memory_max_bytes = 64 << 20;
    assert_non_null(strstr(reply_of("local function f(n) return f(n) + 1 end return f(1)", ""),
                           "stack overflow"));
    load.memory_max_bytes = 4 << 20;
    rt = must_open(COUNTER "return M");
    assert_string_equal(fake_step(rt, &fake, "x"), "bad_request/400 no integer");
    assert_string_equal(fake_step(rt, &fake, "4"), "4"); /* not 1004 */
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* A handler that cannot run is refused at registration. The message has the file, the line and the
 * remedy. */
static void
load_errors_name_the_fix(void **state)
{
    (void)state;
    assert_string_equal(load_error("return {\n  step = \n}"),
                        "handler.lua:3: unexpected symbol near '}'");
    assert_string_equal(load_error("x = 1"),
                        "handler.lua must return a table of functions, got nil "
                        "(end the file with 'return M')");
    assert_non_null(strstr(load_error("return {}"), "neither step(state, req)"));
    assert_non_null(strstr(load_error("return { handle = print }"), "define step(state, req)"));
    assert_non_null(strstr(load_error("return { api = 2, step = print }"), "supports api = 1"));
    assert_non_null(
        strstr(load_error("return { step = 3 }"), "step must be a function, got number"));
    assert_non_null(strstr(load_error("return { step = print, load = function(ctx)\n"
                                      "  return nil, 'no weights in ' .. ctx.dir end }"),
                           "load(ctx) failed: no weights in /tmp"));
    assert_non_null(
        strstr(load_error("return { step = print, load = function() return false, 'no' end }"),
               "load(ctx) failed: no"));
    assert_non_null(
        strstr(load_error("return { step = print, load = function() return false end }"),
               "load(ctx) failed: it returned false"));
    assert_non_null(strstr(load_error("return { step = print, on_close = print }"),
                           "on_close is never called: the server calls close(seq, state, reason)"));
    assert_non_null(strstr(load_error("\033Lua"), "attempt to load a binary chunk"));
    /* A byte order mark and a first line with #! are allowed, and count as a line. */
    assert_string_equal(load_error("\xef\xbb\xbfreturn {\n  step = \n}"),
                        "handler.lua:3: unexpected symbol near '}'");
    assert_string_equal(load_error("\xef\xbb\xbf#!/usr/bin/lua\nstep = \n}"),
                        "handler.lua:3: unexpected symbol near '}'");
    assert_string_equal(load_error("#"), "handler.lua must return a table of functions, got nil "
                                         "(end the file with 'return M')");
    load.handler = "../handler.lua";
    assert_non_null(strstr(load_error(""), "is not the name of a file in the model"));
    load.handler = "other.lua";
    assert_string_equal(load_error(""), "the model has no file other.lua");
    load.handler = "handler.lua";
}

/* load(ctx) gets the name, the version and the folder of the model, and its whole YAML, in which
 * null is nil. */
static void
load_gets_the_context(void **state)
{
    struct cn_runtime *rt = must_open(
        "local M = {}\n"
        "function M.load(ctx) M.ctx = ctx end\n"
        "function M.step(state, req) local c = M.ctx\n"
        "  return ('%s %s %d %s %s'):format(c.model, c.version, c.worker, c.config.handler.rate,"
        "    c.config.handler.none) end\n"
        "return M");
    struct fake fake = {0};

    (void)state;
    assert_string_equal(fake_step(rt, &fake, ""), "m 1.0 3 0.5 nil");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* A request has what the client sent. Names of headers may be spelled in any way. */
static void
request_shows_what_was_sent(void **state)
{
    struct cn_runtime *rt = must_open(
        "return { step = function(state, req)\n"
        "  local r = req.parts.extra\n"
        "  local keep = last last = req\n"
        "  if keep then return select(2, pcall(function() return keep.body end)) end\n"
        "  return table.concat({ req.body, r.data, r.content_type, #req.parts, req.parts[1].name,\n"
        "    req.headers['x_PROBE'], tostring(req.headers.none), req.sequence_id, req.request_id,\n"
        "    tostring(req.start), tostring(req['end']), tostring(req.end_), req.step,\n"
        "    tostring(req.cancelled), req.deadline, tostring(req.nothing) }, ' ')\n"
        "end }");
    struct fake fake = {0};
    struct cn_item *items[1] = {&fake.item};

    (void)state;
    fake_body(&fake, "a\0b", 3);
    fake.parts[1] = (struct cn_part){CN_STR("extra"), CN_STR("x/y"), CN_STR("more")};
    fake.headers[0] = (struct cn_header){CN_STR("X-Probe"), CN_STR("yes")};
    fake.row.n_parts = 2;
    fake.row.n_headers = 1;
    fake.row.flags |= CN_ROW_END;
    fake.item.step = 4;
    fake.item.stop = CN_STOP_GONE;
    rt->ops->run(rt, items, 1);
    assert_int_equal(fake.item.reply.body.data[1], 0);
    fake.item.reply.body.data[1] = '-';
    assert_string_equal(fake_text(&fake),
                        "a-b more x/y 2 body yes nil seq-1 req-1 true true true 4 "
                        "true inf nil");
    fake_end(rt, &fake);
    assert_string_equal(
        fake_step(rt, &fake, ""),
        "handler.lua:4: this request has ended: keep what you need from it in the state");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* In JSON, integers stay integers and null is a value. Invalid JSON is the client's mistake. */
static void
json_keeps_types(void **state)
{
    (void)state;
    assert_string_equal(
        reply_of("return { json = req.json }",
                 "{\"b\":[1,2.0,9007199254740993,null,[],{}],\"a\":\"\\u0000\xc3\xa4\"}"),
        "{\"a\":\"\\u0000\xc3\xa4\",\"b\":[1,2.0,9007199254740993,null,[],{}]}");
    assert_string_equal(
        reply_of("return { json = { x = req.json.x == continuo.null, "
                 "t = math.type(req.json.y), l = {1, 2}, e = continuo.json.array() } }",
                 "{\"x\":null,\"y\":7}"),
        "{\"e\":[],\"l\":[1,2],\"t\":\"integer\",\"x\":true}");
    assert_non_null(strstr(reply_of("return req.json.x", "{\"x\":"),
                           "bad_request/400 the request's body is not valid JSON: line 1"));
    assert_non_null(strstr(reply_of("return req.text", "\xff"), "bad_request/400"));
    assert_non_null(strstr(reply_of("return { json = { a = { 1, 0/0 } } }", ""),
                           "reply.json.a[2]: nan is not a JSON number"));
    assert_non_null(strstr(reply_of("return { json = { 1, nil, 3 } }", ""), "only string keys"));
    assert_non_null(strstr(reply_of("return { json = print }", ""),
                           "reply.json: a function cannot be part of JSON"));
    assert_non_null(strstr(reply_of("local t = {} t.t = t return { json = t }", ""), "nested too"));
    assert_string_equal(reply_of("return tostring(select(2, continuo.json.decode('[')))", ""),
                        "line 1, column 1: ']' expected near end of file");
    assert_string_equal(
        reply_of("return continuo.json.encode({ a = 0.1, b = 1e300, c = 1e15 })", ""),
        "{\"a\":0.1,\"b\":1e+300,\"c\":1e+15}");
}

/* A reply table sets status, headers, content type and the end of the sequence. A misspelled key is
 * an error. */
static void
reply_table_sets_everything(void **state)
{
    struct cn_runtime *rt = must_open(
        "return { step = function(state, req)\n"
        "  req:send('one ') req:send(2)\n"
        "  return { text = 'x', status = 201, headers = { ['x-a'] = 'b' }, end_sequence = true }\n"
        "end }");
    struct fake fake = {0};
    struct cn_item *items[1] = {&fake.item};

    (void)state;
    fake_body(&fake, "", 0);
    rt->ops->run(rt, items, 1);
    assert_string_equal(fake_text(&fake), "one |2|x");
    assert_int_equal(fake.item.reply.status, 201);
    assert_true(fake.item.reply.end_sequence);
    assert_int_equal(fake.item.reply.n_headers, 1);
    assert_memory_equal(fake.item.reply.headers.data, "\3\0x-a\1\0\0\0b", 10);
    assert_memory_equal(fake.item.reply.content_type.data, "text/plain", 10);
    fake_end(rt, &fake);
    fake_drop(rt, &fake);
    rt->ops->close(rt);

    assert_non_null(strstr(reply_of("return { txet = 'x' }", ""), "unknown key 'txet' in a reply"));
    assert_non_null(strstr(reply_of("return { text = 'x', body = 'y' }", ""), "one of json, text"));
    assert_non_null(strstr(reply_of("return { text = 'x', status = 99 }", ""), "200 to 599"));
    assert_non_null(strstr(reply_of("return { headers = { ['a b'] = 'x' } }", ""), "'a b'"));
    assert_non_null(strstr(reply_of("return { headers = { a = 'x\\r\\ny' } }", ""), "control"));
    assert_non_null(strstr(reply_of("return { headers = { ['Content_Length'] = 1 } }", ""),
                           "is set by the server"));
    assert_non_null(strstr(reply_of("return ('x'):rep(100001)", ""), "answerMaxBytes"));
    assert_non_null(strstr(reply_of("for i = 1, 3 do req:send(('x'):rep(40000)) end return ''", ""),
                           "answerMaxBytes"));
    assert_string_equal(reply_of("return true", ""), "true");
    assert_non_null(
        strstr(reply_of("return { json = { continuo.array({1}, 'i8') } }", ""),
               "reply.json[1]: a continuo.array cannot be part of JSON; use its :table()"));
    assert_string_equal(reply_of("return 1.5", ""), "1.5");
    assert_non_null(strstr(reply_of("req:reply(1) return 2", ""), "also returned a reply"));
    assert_non_null(strstr(reply_of("req:reply(1) req:reply(2)", ""), "already answered"));
}

/* Whether a sequence ends must be a boolean, because 0 and null are true in Lua. */
static void
flags_of_a_reply_are_booleans(void **state)
{
    (void)state;
    assert_string_equal(
        reply_of("return { text = 'x', end_sequence = req.json }", "null"),
        "handler_failed/0 Prediction failed: reply.end_sequence must be true or false, got null");
    assert_string_equal(
        reply_of("return { text = 'x', stop_streams = 0 }", ""),
        "handler_failed/0 Prediction failed: reply.stop_streams must be true or false, got 0");
    assert_string_equal(reply_of("return { text = 'x', end_sequence = false }", ""), "x");
    assert_string_equal(reply_of("return { text = 'x', end_sequence = nil }", ""), "x");
}

/* The message of an error has its reason, however deep the value lies and however long its
 * path is. */
static void
long_paths_keep_the_reason(void **state)
{
    const char *text = reply_of("local t = { inner = print }\n"
                                "for i = 1, 20 do t = { [('\u00fc'):rep(30)] = t } end\n"
                                "return { json = t }",
                                "");

    (void)state;
    assert_non_null(strstr(text, "reply.json.\u00fc"));
    assert_non_null(strstr(text, " ... "));
    assert_non_null(strstr(text, ".inner: a function cannot be part of JSON"));
    assert_non_null(strstr(reply_of("local t = {} t.children = { t } return { json = t }", ""),
                           "does a table contain itself?"));
}

/* Returns whether two steps answer with the same bytes. */
static bool
same_outputs(const char *one, const char *other)
{
    const char *outputs[2] = {one, other};
    struct cn_buf bodies[2];
    struct fake fake = {0};
    struct cn_item *item = &fake.item;
    char source[600];
    bool same;

    for (int i = 0; i < 2; i++) {
        struct cn_runtime *rt;

        snprintf(source, sizeof(source),
                 "return { step = function() return { outputs = { Y = %s } } end }", outputs[i]);
        rt = must_open(source);
        fake_body(&fake, "", 0);
        rt->ops->run(rt, &item, 1);
        assert_string_equal(item->reply.error_code ? fake_text(&fake) : "", "");
        cn_buf_init(&bodies[i], 0);
        cn_buf_append_str(&bodies[i], cn_buf_str(&item->reply.body));
        fake_end(rt, &fake);
        fake_drop(rt, &fake);
        rt->ops->close(rt);
    }
    assert_int_not_equal(bodies[0].len, 0);
    same = cn_str_eq(cn_buf_str(&bodies[0]), cn_buf_str(&bodies[1]));
    cn_buf_fini(&bodies[0]);
    cn_buf_fini(&bodies[1]);
    return same;
}

/* An output has the values that the handler gave, or it is an error. Bytes of another type are not
 * reinterpreted. */
static void
outputs_are_what_was_given(void **state)
{
#define FAILED "handler_failed/0 Prediction failed: "
    (void)state;
    assert_false(
        same_outputs("{ datatype = 'FP32', data = {1} }", "{ datatype = 'FP32', data = {2} }"));
    assert_true(same_outputs("{ datatype = 'FP32', data = continuo.array({1, 2, -3}, 'i16') }",
                             "{ datatype = 'FP32', data = {1, 2, -3} }"));
    assert_true(same_outputs("{ datatype = 'FP32', data = continuo.array({0.5, 2}, 'f64') }",
                             "{ datatype = 'FP32', data = {0.5, 2} }"));
    assert_true(same_outputs("{ datatype = 'FP16', data = continuo.array({0, 15360}, 'u16') }",
                             "{ datatype = 'FP16', data = '\\0\\0\\0\\x3c' }"));
    assert_true(same_outputs("{ datatype = 'BOOL', data = {1, 0, true} }",
                             "{ datatype = 'BOOL', data = {true, false, true} }"));
    assert_true(same_outputs("{ datatype = 'UINT64', data = {-1} }",
                             "{ datatype = 'UINT64', data = ('\\xff'):rep(8) }"));
#define REPLY(type, data)                                                                          \
    reply_of("return { outputs = { Y = { datatype = '" type "', data = " data " } } }", "")
    assert_string_equal(REPLY("UINT8", "{ 255, 256 }"),
                        FAILED "output 'Y': element 2 is 256, which does not fit into UINT8");
    assert_string_equal(REPLY("UINT32", "{ -1 }"),
                        FAILED "output 'Y': element 1 is -1, which does not fit into UINT32");
    assert_string_equal(REPLY("INT16", "{ -32768, 32767, 32768 }"),
                        FAILED "output 'Y': element 3 is 32768, which does not fit into INT16");
    assert_string_equal(REPLY("INT8", "continuo.array({ 200 }, 'u8')"),
                        FAILED "output 'Y': element 1 is 200, which does not fit into INT8");
    assert_string_equal(REPLY("INT32", "continuo.array({ 1.5 }, 'f32')"),
                        FAILED "output 'Y': element 1 is number 1.5, not INT32");
    assert_string_equal(REPLY("BOOL", "{ 2 }"),
                        FAILED "output 'Y': element 1 is number 2, not BOOL");
    assert_string_equal(REPLY("FP32", "req"), FAILED
                        "output 'Y' needs data: bytes, a continuo.array or a table of values");
    assert_string_equal(REPLY("BYTES", "'text'"),
                        FAILED "output 'Y': the bytes of strings need a shape such as {1, 2}; or "
                               "give the strings: data = {\"text\"}");
}

/* No loop runs longer than the limit, not even one that catches errors or runs in a coroutine. */
static void
time_limit_stops_any_loop(void **state)
{
    static const char *const loops[] = {
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "pcall(function() while true do end end) return 1",
        "coroutine.wrap(function() while true do end end)()",
        "while true do local c = coroutine.create(function() while true do end end) "
        "coroutine.resume(c) end",
#ifndef __SANITIZE_THREAD__ /* it stores a stack of 200 coroutines for each malloc: too slow */
        "local function f() while true do pcall(coroutine.wrap(f)) end end f()",
#endif
        "xpcall(function() while true do end end, function() while true do end end) return 2",
        "local t = setmetatable({}, { __index = function() while true do end end }) return t.x",
    };

    (void)state;
    load.step_time_ms = 30;
    for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++) {
        uint64_t began_ms = cn_now_ms();

        assert_string_equal(
            reply_of(loops[i], ""),
            "deadline/0 Prediction failed: handler.lua reached its time limit of 30 ms");
        assert_true(cn_now_ms() - began_ms <
                    20000); /* it ends; other processes may have the processor */
    }
    load.step_time_ms = 0;
}

/* After a step was stopped, the VM works as before, and a request whose time is over is not
 * begun. */
static void
vm_lives_on_after_the_limit(void **state)
{
    struct cn_runtime *rt;
    struct fake fake = {0}, late = {0};
    struct cn_item *items[2] = {&late.item, &fake.item};

    (void)state;
    rt = must_open("return { step = function(state, req)\n"
                   "  while req.body == 'loop' do end\n"
                   "  local n = 0 for i = 1, 20000 do n = n + 1 end return n end }");
    fake_body(&late, "loop", 4);
    late.item.deadline_ms = cn_now_ms() + 20;
    fake_body(&fake, "", 0);
    rt->ops->run(rt, items, 2);
    assert_int_equal(late.item.reply.error_code, CN_E_HANDLER_DEADLINE);
    assert_string_equal(fake_text(&fake), "20000");
    fake_end(rt, &late);
    fake_end(rt, &fake);

    fake_body(&late, "", 0);
    late.item.deadline_ms = cn_now_ms();
    rt->ops->run(rt, items, 1);
    assert_string_equal(fake_text(&late),
                        "deadline/0 the request's deadline passed before its step began");
    fake_end(rt, &late);
    fake_drop(rt, &fake);
    fake_drop(rt, &late);
    rt->ops->close(rt);
}

/* A step that uses up the memory fails alone. */
static void
memory_limit_fails_one_step(void **state)
{
    struct cn_runtime *rt = must_open(
        "return { step = function(state, req)\n"
        "  if req.body == 'big' then local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t "
        "end end\n"
        "  if req.body == 'rep' then return #('x'):rep(1 << 30) end\n"
        "  if req.body == 'caught' then return tostring(pcall(string.rep, 'x', 1 << 30)) end\n"
        "  return 'fine' end }");
    struct fake fake = {0};

    (void)state;
    assert_string_equal(fake_step(rt, &fake, "big"),
                        "out_of_memory/0 Prediction failed: handler.lua and its states reached the "
                        "memory limit of 4194304 bytes (handler.limits.memoryBytes)");
    assert_string_equal(fake_step(rt, &fake, ""), "fine");
    assert_memory_equal(fake_step(rt, &fake, "rep"), "out_of_memory", 13);
    assert_string_equal(fake_step(rt, &fake, "caught"), "false");
    for (int i = 0; i < 20; i++) {
        fake_step(rt, &fake, "big");
        assert_string_equal(fake_step(rt, &fake, ""), "fine");
    }
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* A handler can use the files of its model, and nothing else of the machine. */
static void
sandbox_holds(void **state)
{
    (void)state;
    assert_string_equal(
        reply_of("local n = {} for k in pairs(_G) do n[#n + 1] = k end table.sort(n) "
                 "return table.concat(n, ' ')",
                 ""),
        "_G _VERSION assert collectgarbage continuo coroutine error getmetatable "
        "ipairs load math next os pairs pcall print rawequal rawget rawlen rawset "
        "require select setmetatable string table tonumber torch tostring type utf8 warn "
        "xpcall");
    assert_string_equal(
        reply_of("local n = {} for k in pairs(os) do n[#n + 1] = k end table.sort(n) "
                 "return table.concat(n, ' ')",
                 ""),
        "clock date difftime time");
    assert_string_equal(reply_of("return tostring(load('\\27Lua')) .. load('return 1 + 1')() .. "
                                 "load('return x', 'n', 'b', { x = 5 })()",
                                 ""),
                        "nil25");
    assert_string_equal(reply_of("return tostring(string.dump)", ""), "nil");
    assert_non_null(strstr(reply_of("setmetatable({}, { __gc = print })", ""), "__gc is not"));
    assert_string_equal(reply_of("return setmetatable({}, { __index = { x = 'ok' } }).x", ""),
                        "ok");
    assert_non_null(strstr(reply_of("return getmetatable(req).__index", ""), "index a boolean"));
    assert_non_null(strstr(reply_of("collectgarbage('stop')", ""), "invalid option"));
    assert_string_equal(reply_of("print('a', nil, 1) continuo.log('info', {}) return "
                                 "math.type(collectgarbage('count'))",
                                 ""),
                        "float");
}

/* require loads each module of the model once, and nothing from outside. */
static void
require_stays_in_the_model(void **state)
{
    (void)state;
    test_dir_write(dir, "one.lua",
                   "loads = (loads or 0) + 1\nreturn { name = ..., loads = loads }");
    test_dir_write(dir, "a.lua", "return require 'b'");
    test_dir_write(dir, "b.lua", "return require 'a'");
    test_dir_write(dir, "bad.lua", "x = = 1");
    assert_string_equal(
        reply_of("require 'one' return require 'one'.name .. require('one').loads", ""), "one1");
    assert_non_null(strstr(reply_of("require 'a'", ""), "require each other in a circle"));
    assert_non_null(strstr(reply_of("require '../x'", ""), "only .lua files of the model"));
    assert_non_null(strstr(reply_of("require '/etc/passwd'", ""), "only .lua files of the model"));
    assert_non_null(strstr(reply_of("require 'none'", ""), "neither none.lua nor none/init.lua"));
    assert_non_null(strstr(reply_of("require 'bad'", ""), "bad.lua:1: unexpected symbol"));
}

/* Numbers that are packed in bytes are read without copies, and their range is checked. */
static void
arrays_read_bytes(void **state)
{
    (void)state;
    assert_string_equal(
        reply_of("local a = continuo.array('\\1\\0\\xff\\xff\\3\\0', 'i16')\n"
                 "return table.concat({ #a, a[1], a[2], a:sum(), a:mean(), a:max(), "
                 "a:min(), a:energy(), #a:slice(2), a:slice(-1)[1], "
                 "tostring(a[4]), #a:slice(3, 2), a:table()[3] }, ' ')",
                 ""),
        "3 1 -1 3 1.0 3 -1 11.0 2 3 nil 0 3");
    assert_string_equal(reply_of("local a = continuo.array({ 1.5, -2 }, 'f32')\n"
                                 "return a:sum() .. ' ' .. #a:bytes() .. ' ' .. a:rms()",
                                 ""),
                        "-0.5 8 1.7677669529664");
    assert_non_null(strstr(reply_of("continuo.array('abc', 'f32')", ""),
                           "bad_request/400 3 bytes are not a multiple of the size of f32"));
    assert_non_null(strstr(reply_of("continuo.array(setmetatable({ 1, 2, 3 }, { __len = function() "
                                    "return 1 << 61 end }), 'f64')",
                                    ""),
                           "a table of 2305843009213693952 elements: an array may have 0 to"));
    assert_non_null(
        strstr(reply_of("continuo.stack(setmetatable({ req, req }, { __len = function() "
                        "return 1 << 61 end }), 'x')",
                        ""),
               "2305843009213693952 items"));
    assert_non_null(strstr(reply_of("continuo.array({ 70000 }, 'i16')", ""),
                           "element 1 is 70000, which does not fit into i16"));
    assert_string_equal(reply_of("return continuo.unpack('<i4', continuo.pack('<i4', -7))", ""),
                        "-7");
}

#define BATCH(body)                                                                                \
    "return { init = function(s) return { n = 0 } end, batch = function(items)\n" body "\nend }"

static void
run_three(struct cn_runtime *rt, struct fake fakes[3], const char *const bodies[3])
{
    struct cn_item *items[3];

    for (int i = 0; i < 3; i++) {
        fake_body(&fakes[i], bodies[i], strlen(bodies[i]));
        items[i] = &fakes[i].item;
    }
    rt->ops->run(rt, items, 3);
    for (int i = 0; i < 3; i++) {
        fake_text(&fakes[i]);
        fake_end(rt, &fakes[i]);
    }
}

/* batch(items) answers each item. An item that it does not answer fails, and the others do not. */
static void
batch_answers_each_item(void **state)
{
    struct cn_runtime *rt = must_open(
        BATCH("for _, it in ipairs(items) do\n"
              "  it.state.n = it.state.n + 1\n"
              "  if it.req.body == 'fail' then it:fail('bad', 400)\n"
              "  elseif it.req.body == 'boom' then error('boom')\n"
              "  elseif it.req.body ~= 'skip' then it:reply(it.state.n .. '/' .. #items) end\n"
              "end"));
    struct fake fakes[3] = {0};

    (void)state;
    run_three(rt, fakes, (const char *const[]){"a", "skip", "fail"});
    assert_string_equal(fakes[0].text, "1/3");
    assert_string_equal(fakes[1].text, "handler_failed/0 Prediction failed: handler.lua: handler "
                                       "answered 2 of 3 items: batch(items) must call it:reply, "
                                       "it:fail or it:defer for each item");
    assert_string_equal(fakes[2].text, "bad_request/400 bad");
    run_three(rt, fakes, (const char *const[]){"a", "b", "c"});
    assert_string_equal(fakes[0].text, "2/3");
    assert_string_equal(fakes[1].text, "1/3");

    /* An error fails the whole batch, except for items that the handler has already refused. */
    run_three(rt, fakes, (const char *const[]){"a", "fail", "boom"});
    assert_non_null(strstr(fakes[0].text, "handler.lua:5: boom"));
    assert_string_equal(fakes[1].text, "bad_request/400 bad");
    assert_non_null(strstr(fakes[2].text, "handler.lua:5: boom"));
    assert_null(fakes[0].item.state);
    for (int i = 0; i < 3; i++)
        fake_drop(rt, &fakes[i]);
    rt->ops->close(rt);
}

/* A handler may replace a state, and may change the table of items that it gets. */
static void
batch_may_replace_states(void **state)
{
    struct cn_runtime *rt = must_open(BATCH(
        "local all = {} for i = #items, 1, -1 do all[#all + 1] = table.remove(items, i) end\n"
        "for _, it in ipairs(all) do it.state = { n = it.state.n + 10 } it:reply(it.state.n) end"));
    struct fake fakes[3] = {0};
    struct cn_error err;

    (void)state;
    run_three(rt, fakes, (const char *const[]){"", "", ""});
    assert_string_equal(fakes[0].text, "10");
    assert_int_equal(fake_move(rt, &fakes[0], &err), 0);
    run_three(rt, fakes, (const char *const[]){"", "", ""});
    assert_string_equal(fakes[0].text, "20");
    assert_string_equal(fakes[2].text, "20");
    for (int i = 0; i < 3; i++)
        fake_drop(rt, &fakes[i]);
    rt->ops->close(rt);
}

/* If init returns a constant, all sequences share one table and count together, so this is
 * refused. */
static void
sequences_have_tables_of_their_own(void **state)
{
    struct cn_runtime *rt = must_open("local zero = { n = 0 }\n"
                                      "return { init = function(seq) return zero end,\n"
                                      "step = function(state, req)\n"
                                      "  if req.body == 'own' then req.state = { n = 7 } end\n"
                                      "  req.state.n = req.state.n + 1 return req.state.n end }");
    static struct fake a, b, c, d;

    (void)state;
    assert_string_equal(fake_step(rt, &c, "own"),
                        "8"); /* one sequence with the constant does no harm */
    assert_string_equal(fake_step(rt, &d, "own"), "8");
    assert_string_equal(fake_step(rt, &a, ""), "1");
    assert_string_equal(fake_step(rt, &b, ""),
                        "handler_failed/0 Prediction failed: handler.lua: a new sequence has the "
                        "same table as another one for its state: make a new one for each, within "
                        "init(seq)");
    assert_string_equal(fake_step(rt, &a, ""), "2");
    fake_drop(rt, &a);
    fake_drop(rt, &b);
    fake_drop(rt, &c);
    fake_drop(rt, &d);
    rt->ops->close(rt);
}

/* If init fails for one sequence, the others of its batch still run. */
static void
batch_survives_a_failed_init(void **state)
{
    struct cn_runtime *rt = must_open(
        "return { init = function(seq) if seq.body == 'x' then error('no') end return {} end,\n"
        "batch = function(items) for _, it in ipairs(items) do it:reply(#items) end end }");
    struct fake fakes[3] = {0};

    (void)state;
    run_three(rt, fakes, (const char *const[]){"a", "x", "b"});
    assert_string_equal(fakes[0].text, "2");
    assert_string_equal(fakes[1].text, "handler_failed/0 Prediction failed: handler.lua:1: no");
    assert_string_equal(fakes[2].text, "2");
    for (int i = 0; i < 3; i++)
        fake_drop(rt, &fakes[i]);
    rt->ops->close(rt);
}

/* In a stateless model step gets nil as its state, and handle gets only the request. */
static void
stateless_models_get_no_state(void **state)
{
    struct cn_runtime *rt;
    struct fake fake = {0};

    (void)state;
    load.stateful = 0;
    rt = must_open("return { step = function(state, req) return tostring(state) .. req.body end }");
    assert_string_equal(fake_step(rt, &fake, "x"), "nilx");
    assert_null(fake.item.state);
    rt->ops->close(rt);
    rt = must_open("return { handle = function(req) return req.body:upper() end }");
    assert_string_equal(fake_step(rt, &fake, "x"), "X");
    rt->ops->close(rt);
    load.stateful = 1;
}

/* close gets the id, the state and the reason. An error in it affects nobody. */
static void
close_hears_the_reason(void **state)
{
    struct cn_runtime *rt = must_open(
        "local M = { init = function() return { n = 3 } end }\n"
        "function M.step(state, req) return heard or 'nothing' end\n"
        "function M.close(seq, state, reason)\n"
        "  heard = seq.sequence_id .. ' ' .. tostring(state and state.n) .. ' ' .. reason end\n"
        "return M");
    struct fake fake = {0};

    (void)state;
    fake_step(rt, &fake, "");
    rt->ops->on_close(rt, CN_STR("s9"), fake.item.state, CN_CLOSE_IDLE);
    assert_string_equal(fake_step(rt, &fake, ""), "s9 3 idle");
    rt->ops->on_close(rt, CN_STR("s9"), NULL, CN_CLOSE_ENDED);
    assert_string_equal(fake_step(rt, &fake, ""), "s9 nil ended");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* The result of describe() is shown as JSON. An error in it is reported, and the VM works as
 * before. */
static void
a_handler_describes_itself(void **state)
{
    static const char head[] = "local M = { step = function() return 'x' end }\n";
    struct cn_runtime *rt = must_open("local M = { step = function() return 'x' end }\n"
                                      "function M.describe() return { labels = {'a', 'b'} } end\n"
                                      "return M");
    struct fake fake = {0};
    char text[300];

    (void)state;
    assert_string_equal(fake_metadata(rt, &fake), "{\"labels\":[\"a\",\"b\"]}");
    rt->ops->close(rt);
    snprintf(text, sizeof(text), "%sreturn M", head);
    rt = must_open(text);
    assert_string_equal(fake_metadata(rt, &fake), "{}");
    rt->ops->close(rt);
    snprintf(text, sizeof(text), "%sM.describe = function() return 7 end return M", head);
    rt = must_open(text);
    assert_non_null(strstr(fake_metadata(rt, &fake), "describe() must return a table, got number"));
    assert_string_equal(fake_step(rt, &fake, ""), "x");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* If making a reply fails, nothing of it is left in the reply that is made instead. */
static void
a_failed_reply_leaves_nothing(void **state)
{
    struct cn_runtime *rt = must_open(
        "return { step = function(state, req)\n"
        "  for _, bad in ipairs { { text = 'x', nope = 1 }, { status = 404, nope = 1 },\n"
        "      { headers = { a = 'b' }, nope = 1 }, { content_type = 'c', nope = 1 },\n"
        "      { end_sequence = true, nope = 1 }, { stop_streams = true, nope = 1 } } do\n"
        "    for key, value in pairs(bad) do\n" /* pairs may have any order */
        "      assert(not pcall(req.reply, req, setmetatable({ json = print }, {})))\n"
        "      assert(not pcall(req.reply, req, { [key] = value, json = print }))\n"
        "    end\n"
        "    assert(not pcall(req.reply, req, bad))\n"
        "  end\n"
        "  req:reply { json = { 1 } }\n"
        "end }");
    struct fake fake = {0};
    struct cn_item *items[1] = {&fake.item};

    (void)state;
    fake_body(&fake, "", 0);
    rt->ops->run(rt, items, 1);
    assert_string_equal(fake_text(&fake), "[1]");
    assert_int_equal(fake.item.reply.status, 0);
    assert_int_equal(fake.item.reply.n_headers, 0);
    assert_int_equal(fake.item.reply.headers.len, 0);
    assert_false(fake.item.reply.end_sequence || fake.item.reply.stop_streams);
    assert_memory_equal(fake.item.reply.content_type.data, "application/json", 16);
    fake_end(rt, &fake);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* The collector may empty a weak table while it is written. What was in it at the beginning is
 * written. */
static void
weak_tables_are_written_whole(void **state)
{
    const char *text;

    (void)state;
    load.memory_max_bytes = 64 << 20;
    text = reply_of("local weak, big = setmetatable({}, { __mode = 'v' }), {}\n"
                    "for i = 1, 200 do big[i .. ('x'):rep(10000)] = true end\n"
                    "local all = { big, big, big, big, big }\n"
                    "for i = 1, 200 do weak['k' .. ('z'):rep(60) .. i] = { i } end\n"
                    "weak.a = all\n"
                    "return continuo.json.encode(weak):find('null') and 'lost' or 'whole'",
                    "");
    load.memory_max_bytes = 4 << 20;
    assert_string_equal(text, "whole");
}

/* A key that the handler has put among the headers does not disturb a look-up. */
static void
headers_may_be_changed(void **state)
{
    (void)state;
    assert_string_equal(reply_of("req.headers[1] = 'x' req.headers[{}] = 'y'\n"
                                 "return tostring(req.headers['No-Such'])",
                                 ""),
                        "nil");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_goes_on),
        cmocka_unit_test(refusals_have_status_and_message),
        cmocka_unit_test(a_refusals_status_is_checked),
        cmocka_unit_test(errors_name_file_and_line),
        cmocka_unit_test(load_errors_name_the_fix),
        cmocka_unit_test(load_gets_the_context),
        cmocka_unit_test(request_shows_what_was_sent),
        cmocka_unit_test(json_keeps_types),
        cmocka_unit_test(reply_table_sets_everything),
        cmocka_unit_test(flags_of_a_reply_are_booleans),
        cmocka_unit_test(long_paths_keep_the_reason),
        cmocka_unit_test(outputs_are_what_was_given),
        cmocka_unit_test(time_limit_stops_any_loop),
        cmocka_unit_test(vm_lives_on_after_the_limit),
        cmocka_unit_test(memory_limit_fails_one_step),
        cmocka_unit_test(sandbox_holds),
        cmocka_unit_test(require_stays_in_the_model),
        cmocka_unit_test(arrays_read_bytes),
        cmocka_unit_test(batch_answers_each_item),
        cmocka_unit_test(batch_may_replace_states),
        cmocka_unit_test(sequences_have_tables_of_their_own),
        cmocka_unit_test(batch_survives_a_failed_init),
        cmocka_unit_test(stateless_models_get_no_state),
        cmocka_unit_test(close_hears_the_reason),
        cmocka_unit_test(a_failed_reply_leaves_nothing),
        cmocka_unit_test(weak_tables_are_written_whole),
        cmocka_unit_test(headers_may_be_changed),
        cmocka_unit_test(a_handler_describes_itself),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

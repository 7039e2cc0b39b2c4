/* Tests the Lua runtime through its functions: loading, errors, states, batches. */
#include "handlers/lua/test_lua.h"

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

/* A reply that is too long is given up when that is known, however long it would become. */
static void
too_long_replies_end_soon(void **state)
{
    (void)state;
    assert_non_null(strstr(reply_of("local t = {} for i = 1, 60 do t = { t, t } end\n"
                                    "return { json = t }",
                                    ""),
                           "exceeds the limit of 100000 bytes"));
    assert_non_null(strstr(reply_of("local t = {} for i = 1, 60 do t = { a = t, b = t } end\n"
                                    "return continuo.json.encode(t)",
                                    ""),
                           "exceeds the handler's memory limit"));
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
        cmocka_unit_test(long_paths_keep_the_reason),
        cmocka_unit_test(too_long_replies_end_soon),
        cmocka_unit_test(batch_answers_each_item),
        cmocka_unit_test(batch_may_replace_states),
        cmocka_unit_test(sequences_have_tables_of_their_own),
        cmocka_unit_test(batch_survives_a_failed_init),
        cmocka_unit_test(stateless_models_get_no_state),
        cmocka_unit_test(close_hears_the_reason),
        cmocka_unit_test(weak_tables_are_written_whole),
        cmocka_unit_test(a_handler_describes_itself),
    };

    return cmocka_run_group_tests(tests, test_lua_setup, test_lua_teardown);
}

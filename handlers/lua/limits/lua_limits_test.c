/* Tests what a Lua handler may use: time, memory, files and functions. */
#include "handlers/lua/test_lua.h"

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

/* A request that was left open, and that has its answer, does not fail because another row's step
 * of the same batch is stopped. */
static void
a_stopped_step_fails_no_open_request(void **state)
{
    struct cn_runtime *rt = must_open("local kept\n"
                                      "return { step = function(state, req)\n"
                                      "  if req.body == 'keep' then\n"
                                      "    kept = req; state.n = 1; req:defer() return end\n"
                                      "  kept:reply('late') while true do end end }");
    struct fake open = {0}, other = {0};
    struct cn_item *items[2] = {&open.item, &other.item};

    (void)state;
    fake_body(&open, "keep", 4);
    fake_body(&other, "", 0);
    other.item.deadline_ms = cn_now_ms() + 20;
    rt->ops->run(rt, items, 2);
    assert_int_equal(other.item.reply.error_code, CN_E_HANDLER_DEADLINE);
    assert_string_equal(fake_text(&open), "late");
    assert_non_null(open.item.state);
    assert_null(open.item.resume);
    fake_end(rt, &open);
    fake_end(rt, &other);
    fake_drop(rt, &open);
    fake_drop(rt, &other);
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_limit_stops_any_loop),
        cmocka_unit_test(vm_lives_on_after_the_limit),
        cmocka_unit_test(a_stopped_step_fails_no_open_request),
        cmocka_unit_test(memory_limit_fails_one_step),
        cmocka_unit_test(sandbox_holds),
        cmocka_unit_test(require_stays_in_the_model),
    };

    return cmocka_run_group_tests(tests, test_lua_setup, test_lua_teardown);
}

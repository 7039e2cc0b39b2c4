/* Tests encoding and decoding Lua states: every value comes back as it was, or is refused by its
 * name. */
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

static struct cn_runtime *
open_handler(const char *source)
{
    struct cn_runtime *rt = NULL;
    struct cn_error err = {0};

    test_dir_write(dir, "handler.lua", source);
    if (cn_lua_runtime_ops.open(&load, CN_STR(""), &rt, &err) != 0)
        fail_msg("%s", err.message);
    return rt;
}

static int
setup(void **state)
{
    (void)state;
    cn_log_set_level(CN_LOG_ERROR);
    test_dir_make(dir);
    load = (struct cn_load){.model_name = "m",
                            .model_version = "1",
                            .model_dir = dir,
                            .handler = "handler.lua",
                            .stateful = 1,
                            .state_max_bytes = 1 << 20,
                            .memory_max_bytes = 64 << 20};
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    return test_dir_remove(dir);
}

/* Runs a handler that puts the Lua value `make` into state.v at its first step, and afterwards
 * answers the Lua expression `look` on `v`. Returns the answer after the state was encoded and
 * decoded. */
static const char *
moved(const char *make, const char *look)
{
    static struct fake fake;
    static char live[sizeof(fake.text)];
    static struct cn_error err;
    char source[4000];
    struct cn_runtime *rt;
    int rc;

    memset(&fake, 0, sizeof(fake));
    snprintf(source, sizeof(source),
             "return { step = function(state, req)\n"
             "if req.start then state.v = %s return 'made' end\n"
             "local v = state.v return tostring(%s) end }",
             make, look);
    rt = open_handler(source);
    assert_string_equal(fake_step(rt, &fake, ""), "made");
    strcpy(live, fake_step(rt, &fake, ""));
    rc = fake_move(rt, &fake, &err);
    if (rc == 0)
        assert_string_equal(fake_step(rt, &fake, ""),
                            live); /* the state in memory has changed in the same way */
    rt->ops->state_free(rt, fake.item.state);
    rt->ops->close(rt);
    return rc == 0 ? fake.text : err.message;
}

/* Numbers keep their kind and every bit. Counters above 2^53 and NaN may be in a state, too. */
static void
numbers_come_back_exactly(void **state)
{
    static const char *const numbers[] = {
        "0",
        "-1",
        "127",
        "128",
        "-32",
        "-33",
        "255",
        "256",
        "65536",
        "-129",
        "-32769",
        "9007199254740993",
        "math.maxinteger",
        "math.mininteger",
        "4294967296",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char look[100];

        snprintf(look, sizeof(look), "v == %s and math.type(v)", numbers[i]);
        assert_string_equal(moved(numbers[i], look), "integer");
    }
    assert_string_equal(moved("1.0", "math.type(v) .. v"), "float1.0");
    assert_string_equal(moved("0/0", "v ~= v"), "true");
    assert_string_equal(moved("-0.0", "1 / v"), "-inf");
    assert_string_equal(moved("0.1 + 0.2", "v == 0.1 + 0.2"), "true");
    assert_string_equal(moved("math.huge", "v == math.huge"), "true");
}

/* Strings are bytes of any length; booleans, null and keys of all scalar kinds are kept. */
static void
values_come_back(void **state)
{
    (void)state;
    assert_string_equal(moved("'a\\0\\xff'", "v == 'a\\0\\xff'"), "true");
    assert_string_equal(moved("('x'):rep(70000)", "#v"), "70000");
    assert_string_equal(moved("''", "v == ''"), "true");
    assert_string_equal(moved("false", "v == false"), "true");
    assert_string_equal(moved("continuo.null", "v == continuo.null"), "true");
    assert_string_equal(moved("{ [true] = 1, [1.5] = 2, [-1] = 3, a = 4, ['1'] = 5 }",
                              "v[true] .. v[1.5] .. v[-1] .. v.a .. v['1'] .. tostring(v[1])"),
                        "12345nil");
    assert_string_equal(moved("{ 1, { 2, { 3, { x = 'deep' } } } }", "v[2][2][2].x"), "deep");
}

/* A list stays a list, a hole stays a hole, and an empty table stays empty. */
static void
tables_keep_their_shape(void **state)
{
    (void)state;
    assert_string_equal(moved("{ 1, 2, 3 }", "#v .. continuo.json.encode(v)"), "3[1,2,3]");
    assert_string_equal(
        moved("{ 1, nil, 3 }", "tostring(v[1]) .. tostring(v[2]) .. tostring(v[3])"), "1nil3");
    assert_string_equal(moved("{ [1000000] = 1 }", "v[1000000] .. tostring(v[1])"), "1nil");
    assert_string_equal(moved("{ [3] = 3, [1] = 1, [2] = 2 }", "#v"), "3");
    assert_string_equal(moved("{}", "continuo.json.encode(v)"), "{}");
    assert_string_equal(moved("continuo.json.array()", "continuo.json.encode(v)"), "[]");
    assert_string_equal(
        moved("continuo.json.decode('[[],{},[1,[2,[]]]]')", "continuo.json.encode(v)"),
        "[[],{},[1,[2,[]]]]");
    /* A list from JSON that is emptied later is still a list. */
    assert_string_equal(moved("continuo.json.decode('[1]')",
                              "(function() v[1] = nil return continuo.json.encode(v) end)()"),
                        "[]");
}

/* A value that could not come back is refused at once, and the message has the path to it. */
static void
refusals_name_the_key(void **state)
{
    (void)state;
    assert_string_equal(moved("{ users = { 1, 2, { callback = print } } }", "1"),
                        "state.v.users[3].callback: a function cannot be stored");
    assert_string_equal(moved("{ ['a b'] = req }", "1"),
                        "state.v[\"a b\"]: a userdata cannot be stored");
    assert_string_equal(moved("continuo.array({1}, 'f32')", "1"),
                        "state.v: a continuo.array cannot be stored; store its :bytes()");
    assert_string_equal(moved("coroutine.create(print)", "1"),
                        "state.v: a thread cannot be stored");
    assert_string_equal(moved("setmetatable({}, {})", "1"),
                        "state.v: a table with a metatable cannot be stored");
    assert_string_equal(moved("(function() local t = {} t.x = { t } return t end)()", "1"),
                        "state.v.x[1]: this table occurs twice in the state; store a copy");
    assert_string_equal(moved("(function() local t = {} return { a = { t, t } } end)()", "1"),
                        "state.v.a[2]: this table occurs twice in the state; store a copy");
    assert_string_equal(moved("(function() state.me = { state } return 1 end)()", "1"),
                        "state.me[1]: this table occurs twice in the state; store a copy");
    assert_non_null(strstr(moved("(function() local t = print for i = 1, 12 do\n"
                                 "t = { [('k'):rep(90)] = t } end return t end)()",
                                 "1"),
                           "kkk: a function cannot be stored"));
    assert_non_null(
        strstr(moved("{ [{}] = 1 }", "1"), "only strings, numbers and booleans can be keys"));
    assert_string_equal(moved("{ [setmetatable({}, { __tostring = function() while true do end end "
                              "})] = 1 }",
                              "1"),
                        "state.v[table]: only strings, numbers and booleans can be keys");
}

/* A state may have 16 levels, counted with the state itself. A deeper one is refused and not
 * cut. */
static void
depth_is_bounded(void **state)
{
#define NEST(n)                                                                                    \
    "(function() local t = {} local top = t for i = 1, " #n " do t.a = {} t = t.a end "            \
    "return top end)()"
    (void)state;
    assert_string_equal(moved(NEST(14), "1"), "1");
    assert_non_null(strstr(moved(NEST(15), "1"), ".a.a: tables are nested deeper than 16"));
}

/* A state larger than state.maxBytes has an error of its own, and the state from before the step
 * stays. */
static void
size_is_bounded(void **state)
{
    struct cn_runtime *rt = open_handler("return { step = function(state, req)\n"
                                         "state.v = ('x'):rep(1 << 20) return 1 end }");
    struct fake fake = {0};
    struct cn_error err;

    (void)state;
    fake_step(rt, &fake, "");
    assert_int_equal(fake_move(rt, &fake, &err), CN_E_STATE_TOO_LARGE);
    assert_string_equal(err.message,
                        "the sequence's state is larger than 1048576 bytes (state.maxBytes)");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* Bytes that were not written by a Lua handler are refused, whatever they look like. */
static void
foreign_bytes_are_refused(void **state)
{
    static const struct cn_str bytes[] = {
        {NULL, 0},
        CN_STR("\x01"), /* no table */
        CN_STR("\x81\xa1"
               "a"),                        /* cut */
        CN_STR("\x80\x80"),                 /* more behind */
        CN_STR("\xdd\xff\xff\xff\xff"),     /* 4 G elements */
        CN_STR("\xdf\xff\xff\xff\xff\x01"), /* 4 G pairs */
        CN_STR("\x81\xa1"
               "a\xdb\xff\xff\xff\xff"),                    /* a string of 4 GiB */
        CN_STR("\x81\xc0\x01"),                             /* nil as a key */
        CN_STR("\x81\x80\x01"),                             /* a table as a key */
        CN_STR("\x91\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), /* over int64 */
        CN_STR("\x91\xc1"),                                 /* no type */
        CN_STR("\x91\xc7\x01\x03\x90"),                     /* an extension that is not ours */
        CN_STR("\x91\xc7\x01\x01\x80"),                     /* ours, with no array in it */
        CN_STR("\x91\xc7\x01\x02\x90"),                     /* with no map in it */
        CN_STR("\x91\xc7\x02\x02\x80\x80"),                 /* with more behind the map */
        CN_STR(
            "\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x90"), /* 17 deep */
    };
    struct cn_runtime *rt = open_handler("return { step = function(state, req) return 1 end }");
    struct cn_error err;
    void *object = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
        assert_true(rt->ops->state_decode(rt, bytes[i], 1, &object, &err) < 0);
    assert_null(object);
    rt->ops->close(rt);
}

/* A newer handler is asked to migrate what an older one stored. If it cannot, the message says that
 * it must. */
static void
older_states_are_migrated(void **state)
{
    struct cn_runtime *rt =
        open_handler("return { step = function(state, req) state.n = 5 return 1 end }");
    struct fake fake = {0};
    struct cn_buf bytes;
    struct cn_error err;

    (void)state;
    cn_buf_init(&bytes, 0);
    fake_step(rt, &fake, "");
    assert_int_equal(rt->ops->state_encode(rt, fake.item.state, &bytes, &err), 0);
    fake_drop(rt, &fake);
    rt->ops->close(rt);

    rt = open_handler("return { state_schema = 3, step = function(state, req) return 1 end }");
    assert_int_equal(rt->ops->state_decode(rt, cn_buf_str(&bytes), 1, &fake.item.state, &err),
                     CN_E_HANDLER_FAILED);
    assert_string_equal(err.message,
                        "handler.lua: a stored state has schema 1, but the handler declares 3 "
                        "and has no migrate(state, from)");
    rt->ops->close(rt);

    rt = open_handler(
        "return { state_schema = 3, step = function(state, req) return state.total end,\n"
        "migrate = function(state, from) return { total = state.n + from } end }");
    assert_int_equal(rt->ops->state_decode(rt, cn_buf_str(&bytes), 1, &fake.item.state, &err), 0);
    assert_string_equal(fake_step(rt, &fake, ""), "6");
    fake_drop(rt, &fake);
    rt->ops->close(rt);

    rt = open_handler("return { state_schema = 3, step = function(state, req) return 1 end,\n"
                      "migrate = function(state, from) return nil, 'no total' end }");
    assert_int_equal(rt->ops->state_decode(rt, cn_buf_str(&bytes), 1, &fake.item.state, &err),
                     CN_E_HANDLER_FAILED);
    assert_string_equal(err.message, "handler.lua: migrate(state, from) failed: no total");
    rt->ops->close(rt);

    load.step_time_ms = 20;
    rt = open_handler("return { state_schema = 3, step = function(state, req) return 1 end,\n"
                      "migrate = function(state, from) while true do end end }");
    assert_int_equal(rt->ops->state_decode(rt, cn_buf_str(&bytes), 1, &fake.item.state, &err),
                     CN_E_HANDLER_DEADLINE);
    rt->ops->close(rt);
    load.step_time_ms = 0;
    cn_buf_fini(&bytes);
}

/* If there is no memory for a state, only that state fails, and nothing leaks. */
static void
decode_survives_no_memory(void **state)
{
    struct cn_runtime *rt;
    struct fake fake = {0};
    struct cn_buf bytes;
    struct cn_error err;
    void *object = NULL;

    (void)state;
    cn_buf_init(&bytes, 0);
    rt = open_handler(
        "return { step = function(state, req)\n"
        "state.v = continuo.json.array() for i = 1, 40000 do state.v[i] = 'x' .. i end\n"
        "return 1 end }");
    fake_step(rt, &fake, "");
    assert_int_equal(rt->ops->state_encode(rt, fake.item.state, &bytes, &err), 0);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
    load.memory_max_bytes = 1 << 20;
    rt = open_handler("return { step = function(state, req) return 'fine' end }");
    assert_int_equal(rt->ops->state_decode(rt, cn_buf_str(&bytes), 1, &object, &err),
                     CN_E_OUT_OF_MEMORY);
    assert_string_equal(fake_step(rt, &fake, ""), "fine");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
    load.memory_max_bytes = 64 << 20;
    cn_buf_fini(&bytes);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_back_exactly), cmocka_unit_test(values_come_back),
        cmocka_unit_test(tables_keep_their_shape),   cmocka_unit_test(refusals_name_the_key),
        cmocka_unit_test(depth_is_bounded),          cmocka_unit_test(size_is_bounded),
        cmocka_unit_test(foreign_bytes_are_refused), cmocka_unit_test(older_states_are_migrated),
        cmocka_unit_test(decode_survives_no_memory),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

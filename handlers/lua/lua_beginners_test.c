/* handlers/lua/lua_beginners_test.c - tests that the usual first mistakes in a Lua handler end with
 * a message that says what to do: forgotten locals, misspelt functions, libraries that the sandbox
 * lacks, a state in a model that keeps none. */
#include "handlers/runtime.h"

#include "core/log/log.h"
#include "core/test_support.h"
#include "handlers/c/testdata/fake_row.h"

static char dir[TEST_DIR_MAX];
static struct cn_load load;

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
                            .stateful = 1,
                            .strict_globals = 1};
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    return test_dir_remove(dir);
}

static struct cn_runtime *
must_open(const char *source)
{
    struct cn_runtime *rt = NULL;
    struct cn_error err = {0};

    test_dir_write(dir, "handler.lua", source);
    if (cn_lua_runtime_ops.open(&load, CN_STR("{}"), &rt, &err) != 0)
        fail_msg("%s", err.message);
    return rt;
}

/* The reply to the first of two steps of one handler, and to the second. */
static const char *
replies(const char *source)
{
    static char text[4000];
    struct cn_runtime *rt = must_open(source);
    struct fake *fake = calloc(1, sizeof *fake);
    size_t len = 0;

    text[0] = '\0';
    for (int i = 0; i < 2; i++) {
        fake_step(rt, fake, "x");
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", i ? " | " : "", fake->text);
    }
    rt->ops->state_free(rt, fake->item.state);
    rt->ops->close(rt);
    free(fake);
    return text;
}

static void
expect(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void
a_forgotten_local_is_an_error_at_the_first_step(void **state)
{
    const char *got = replies("local M = {}\n"
                              "function M.step(state, req)\n"
                              "  count = (count or 0) + 1\n"
                              "  return { text = tostring(count) }\n"
                              "end\n"
                              "return M\n");

    (void)state;
    expect(got, "handler.lua:3: the global 'count' is assigned outside of load");
    expect(got, "Write 'local count' where it begins, or keep it in the state");
    expect(got, "handler: {strict: false}");
}

/* Such a global is there when the step begins, so that assigning it is an error only because it
 * lies in a table of its own. */
static void
globals_made_while_loading_can_be_read_and_not_assigned(void **state)
{
    (void)state;
    assert_string_equal(replies("total = 7\n"
                                "function helper() return total end\n"
                                "return { load = function() scale = 3 end,\n"
                                "  step = function(s, r) return { text = '' .. helper() * scale .. "
                                "math.type(total) } end }\n"),
                        "21integer | 21integer");
    expect(replies("total = 0\n"
                   "return { step = function(s, r)\n"
                   "  total = total + 1\n"
                   "  return { text = '' .. total } end }\n"),
           "handler.lua:3: the global 'total' is assigned");
}

static void
strictness_can_be_switched_off(void **state)
{
    (void)state;
    load.strict_globals = 0;
    assert_string_equal(replies("return { step = function(s, r) n = (n or 0) + 1\n"
                                "  return { text = '' .. n } end }\n"),
                        "1 | 2");
    load.strict_globals = 1;
    assert_string_equal(replies("return { step = function(s, r)\n"
                                "  rawset(_G, 'n', (n or 0) + 1)\n"
                                "  return { text = '' .. n } end }\n"),
                        "1 | 2");
}

static void
missing_libraries_are_explained(void **state)
{
    (void)state;
    expect(replies("return { step = function(s, r)\n  local f = io.open('x') end }\n"),
           "handler.lua:2: attempt to index a nil value (global 'io'): handlers run in a sandbox");
    expect(replies("return { step = function(s, r)\n  return os.getenv('HOME') end }\n"),
           "(field 'getenv'): handlers run in a sandbox that has only os.time");
    expect(replies("return { step = function(s, r)\n  dofile('x.lua') end }\n"),
           "require runs Lua files of the model");
}

static void
a_state_that_is_nil_is_explained(void **state)
{
    const char *source = "return { step = function(s, r)\n"
                         "  s.count = (s.count or 0) + 1\n"
                         "  return { text = '' .. s.count } end }\n";

    (void)state;
    assert_string_equal(replies(source), "1 | 2");
    load.stateful = 0;
    expect(replies(source), "handler.lua:2: attempt to index a nil value (local 's'): this model "
                            "is not stateful, so it has no state; sequenceBatching: true");
    expect(replies("return { batch = function(items)\n"
                   "  items[1].state.x = 1 end }\n"),
           "this model is not stateful");
    load.stateful = 1;
}

static void
misspelt_functions_are_told(void **state)
{
    struct cn_runtime *rt;
    struct cn_error err;

    (void)state;
    test_dir_write(dir, "handler.lua", "return { step = print, on_init = print }");
    assert_int_equal(cn_lua_runtime_ops.open(&load, CN_STR("{}"), &rt, &err), CN_E_LOAD_FAILED);
    expect(err.message, "handler.lua: on_init is never called: the server calls init(seq)");
    rt = must_open("return { step = print, closed = print, stop = print }");
    assert_string_equal(rt->warning, "handler.lua: closed is never called: the server calls "
                                     "close(seq, state, reason)");
    rt->ops->close(rt);
    rt = must_open("return { step = print, closed = print, close = print, on_close = print }");
    assert_string_equal(rt->warning, "");
    rt->ops->close(rt);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forgotten_local_is_an_error_at_the_first_step),
        cmocka_unit_test(globals_made_while_loading_can_be_read_and_not_assigned),
        cmocka_unit_test(strictness_can_be_switched_off),
        cmocka_unit_test(missing_libraries_are_explained),
        cmocka_unit_test(a_state_that_is_nil_is_explained),
        cmocka_unit_test(misspelt_functions_are_told),
    };

    return cmocka_run_group_tests_name("handlers.lua_beginners", tests, setup, teardown);
}

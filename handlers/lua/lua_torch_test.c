/* Tests torch.load in a handler, with a stand-in for libtorch
 * (handlers/torchscript/testdata/fake_library.c). tests/e2e/test_torch_lua.py tests it with
 * PyTorch. */
#include "handlers/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "core/log/log.h"
#include "core/test_support.h"
#include "handlers/c/testdata/fake_row.h"

/* Calls the fake model "sum": y = x + h, row by row, where the batch dimension of h is the second
 * one. */
#define STEP                                                                                       \
    "local m = torch.load('model.pt')\n"                                                           \
    "local x = { datatype = 'FP32', shape = {1, 2}, data = {1, 2} }\n"                             \
    "local h = { datatype = 'FP32', shape = {2, 1}, data = continuo.array({10, 20}, 'f32') }\n"

static char dir[TEST_DIR_MAX], library[4096];
static struct cn_load load;

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

/* Returns the reply of a handler whose step is `body`. */
static const char *
reply_of(const char *body)
{
    static struct fake fake;
    static char source[8000];
    struct cn_runtime *rt;

    memset(&fake, 0, sizeof(fake));
    snprintf(source, sizeof(source), "return { step = function(state, req)\n%s\nend }", body);
    rt = must_open(source);
    fake_step(rt, &fake, "");
    rt->ops->state_free(rt, fake.item.state);
    rt->ops->close(rt);
    return fake.text;
}

static int
models_loaded(void)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    int *count, n;

    assert_non_null(handle);
    count = dlsym(handle, "fake_models");
    assert_non_null(count);
    n = *count;
    dlclose(handle);
    return n;
}

static int
setup(void **state)
{
    (void)state;
    test_program_path("torchscript/fake_library.so", library, sizeof(library));
    cn_log_set_level(CN_LOG_ERROR);
    test_dir_make(dir);
    load = (struct cn_load){.model_name = "m",
                            .model_version = "1.0",
                            .model_dir = dir,
                            .handler = "handler.lua",
                            .config_file = "",
                            .runtime = "lua",
                            .torch_library = library,
                            .store_dir = "",
                            .worker_index = 1,
                            .stateful = 1,
                            .state_max_bytes = 100000,
                            .memory_max_bytes = 4 << 20};
    test_dir_write(dir, "model.pt", "sum");
    test_dir_write(dir, "attributes.pt", "attribute");
    test_dir_write(dir, "bad.pt", "nothing");
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    return test_dir_remove(dir);
}

/* Arguments are written like a reply's outputs, and results are read like inputs. */
static void
runs_a_module(void **state)
{
    (void)state;
    assert_string_equal(
        reply_of(STEP
                 "local y, h2, rows, more = m:run { x, h }\n"
                 "return table.concat({ y.datatype, #y.shape, y.shape[2], #y.data, y.values[1], "
                 "y.values[2], h2.shape[1], h2.values[2], rows.datatype, rows.values[1], "
                 "tostring(more) }, ' ')"),
        "FP32 2 2 8 11.0 22.0 2 22.0 INT64 1 nil");
    assert_string_equal(
        reply_of(STEP "local _, h2 = m:run { x, h }\n" /* a result is an argument of the next run */
                      "return { json = (m:run { x, h2 }).values:table() }"),
        "[12.0,24.0]");
    assert_string_equal(reply_of(STEP "return { json = m:run('again', { x, h }).values:table() }"),
                        "[11.0,22.0]");
    assert_string_equal(
        reply_of(STEP "return { json = m:run('forward', { x, h }).values:table() }"),
        "[11.0,22.0]");
    assert_string_equal(reply_of(STEP "return coroutine.wrap(function()\n"
                                      "local n = torch.load('model.pt') coroutine.yield(1)\n"
                                      "return n:run { x, h }.values[1] end)()"),
                        "1");
    assert_string_equal(reply_of(STEP "local go = coroutine.wrap(function()\n"
                                      "coroutine.yield(1) return m:run { x, h }.values[1] end)\n"
                                      "go() return go()"),
                        "11.0");
    assert_string_equal(reply_of(STEP "return tostring(m) .. ', ' .. m:schema()"),
                        "TorchScript model.pt, forward(Tensor x, Tensor h) -> ...");
}

/* A handler may have several modules, and read what a module keeps in its attributes. */
static void
reads_and_sets_attributes(void **state)
{
    (void)state;
    assert_string_equal(
        reply_of("local a = torch.load('attributes.pt')\n"
                 "a:set('_rows', 1)\n"
                 "a:set('_h', { datatype = 'FP32', shape = {1, 2}, data = {5, 6} })\n"
                 "a:run { { datatype = 'FP32', shape = {1, 2}, data = {1, 1} } }\n"
                 "return { json = a:get('_h').values:table() }"),
        "[6.0,7.0]");
    assert_non_null(strstr(reply_of("torch.load('attributes.pt'):get('_x')"),
                           "_x of attributes.pt: RuntimeError: there is no such attribute"));
    assert_non_null(strstr(reply_of("torch.load('attributes.pt'):set('_x', true)"),
                           "_x of attributes.pt: RuntimeError: there is no such attribute"));
}

/* A result may be the state of a sequence, and comes back as the same tensor. */
static void
results_are_state(void **state)
{
    struct cn_runtime *rt = must_open(
        "local m = torch.load('model.pt')\n"
        "return { step = function(state, req)\n"
        "  local x = { datatype = 'FP32', shape = {1, 2}, data = {1, 2} }\n"
        "  local y\n"
        "  state.h = state.h or { datatype = 'FP32', shape = {2, 1}, data = {0, 0} }\n"
        "  y, state.h = m:run { x, state.h }\n"
        "  return y.values[1] .. ' ' .. state.h.values[2] .. ' ' .. state.h.shape[1] end }");
    struct fake fake = {0};
    struct cn_error err;

    (void)state;
    assert_string_equal(fake_step(rt, &fake, ""), "1.0 2.0 2");
    assert_int_equal(fake_move(rt, &fake, &err), 0);
    assert_string_equal(fake_step(rt, &fake, ""), "2.0 4.0 2");
    assert_int_equal(fake_move(rt, &fake, &err), 0);
    assert_string_equal(fake_step(rt, &fake, ""), "3.0 6.0 2");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* The message of each mistake has the value and what is expected. */
static void
mistakes_are_errors(void **state)
{
    static const char *const wrong[][2] = {
        {"m:run { x }", "forward of model.pt: RuntimeError: wrong arguments"},
        {"x.data = {-1, 0} m:run { x, h }", "forward of model.pt: RuntimeError: x is negative"},
        {"m:run('sing', { x })", "sing of model.pt: RuntimeError: there is no such method"},
        {"m:run(x, h)", "wrong arguments"},
        {"m:run()", "table expected"},
        {"m:run { 'x' }", "argument '1' is a string: give a tensor such as req.inputs.x"},
        {"m:run { x, req }", "argument '2' is a userdata"},
        {"m:run { x, {} }", "argument '2' needs a datatype"},
        {"x.shape = {3} m:run { x, h }", "argument: "},
        {"m:run { { datatype = 'BYTES', data = {'a'} } }", "TorchScript does not support BYTES"},
        {"x.data = nil m:run { x, h }", "argument '1' needs data"},
        {"local t = {} for i = 1, 65 do t[i] = x end m:run(t)",
         "65 arguments: a call may have up to 64"},
        {"m:close() m:run { x, h }", "the module model.pt is closed"},
        {"torch.load('none.pt')", "the model has no file none.pt"},
        {"torch.load('../model.pt')", "'../model.pt' is not the name of a file in the model"},
        {"torch.load('bad.pt')", "libtorch 0.0 (fake) cannot load bad.pt: The following operation"},
        {"torch.load()", "string expected"},
        {"torch.load('model.pt', 3)", "table expected"},
        {"torch.load('model.pt', { devices = 'cpu' })", "unknown option devices"},
        {"torch.load('model.pt', { 'cpu' })", "unknown option ?"},
        {"torch.load('model.pt', { device = 'tpu' })", "device must be \"cpu\""},
        {"torch.load('model.pt', { device = 'cuda:' })", "device must be \"cpu\""},
        {"torch.load('model.pt', { threads = 0 })", "threads must be an integer from 1 to 256"},
        {"torch.load('model.pt', { fusion = 1 })", "fusion must be true or false"},
        {"torch.load('model.pt', { method = 1 })", "method must be a string, got number"},
        {"getmetatable(m).x = 1", "attempt to index a boolean"},
        {"setmetatable(m:run { x, h }, nil)", "cannot change a protected metatable"},
    };
    static char body[2000];

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(body, sizeof(body), STEP "%s", wrong[i][0]);
        if (!strstr(reply_of(body), wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], reply_of(body));
    }
    assert_string_equal(reply_of(STEP "local ok, why = pcall(m.run, m, { x })\n"
                                      "return tostring(ok) .. ' ' .. m:run { x, h }.values[1]"),
                        "false 11.0");
    assert_int_equal(models_loaded(), 0);
}

/* Reading a table with metamethods runs code of the handler, which may close the module, let it be
 * collected, or change its mind about the values. */
static void
arguments_that_run_code(void **state)
{
#define LIVELY(does)                                                                               \
    STEP "local a = torch.load('attributes.pt')\n"                                                 \
         "local lively = setmetatable({}, { __index = function(_, key)\n"                          \
         "  " does "\n"                                                                            \
         "  return ({ datatype = 'FP32', shape = {1, 2}, data = {1, 2} })[key] end })\n"
    (void)state;
    assert_non_null(strstr(reply_of(LIVELY("m:close()") "m:run { lively, h }"),
                           "the module model.pt is closed"));
    assert_non_null(strstr(reply_of(LIVELY("m:close()") "m:run('again', { lively, h })"),
                           "the module model.pt is closed"));
    assert_non_null(strstr(reply_of(LIVELY("a:close()") "a:set('_h', lively)"),
                           "the module attributes.pt is closed"));
    assert_string_equal(
        reply_of(LIVELY(
            "collectgarbage() collectgarbage()") "return torch.load('model.pt'):run('again', { "
                                                 "lively, h }).values[1]"),
        "11.0");
    assert_int_equal(models_loaded(), 0);
    assert_non_null(
        strstr(reply_of(STEP "local n = 0\n"
                             "x.shape = setmetatable({}, { __index = function() return 1 end,\n"
                             "  __len = function() n = n + 1 return n == 1 and 1 or 1000 end })\n"
                             "m:run { x, h }"),
               "8 bytes, 1 elements of FP32 need 4 bytes each"));
    assert_non_null(
        strstr(reply_of(STEP "x.shape = setmetatable({}, { __len = function() return -1 end })\n"
                             "m:run { x, h }"),
               "a shape must be a table of up to 16 sizes"));
    /* An output is packed into the same buffer as arguments are. */
    assert_non_null(
        strstr(reply_of(STEP "local rows = {} for i = 1, 128 do rows[i] = i end\n"
                             "local y = { datatype = 'FP32', data = {1, 2} }\n"
                             "return { outputs = { y = setmetatable(y, { __index = function()\n"
                             "  m:run { { datatype = 'FP32', shape = {64, 2}, data = rows },\n"
                             "    { datatype = 'FP32', shape = {2, 64}, data = rows } }\n"
                             "  return {1, 2} end }) } }"),
               "output: tensor y: 512 bytes, 2 elements of FP32 need 4 bytes each"));
}

/* A module is freed by close, by <close>, by the collector, and with the handler. So a handler that
 * loads one in each step has a bounded number of them. */
static void
modules_are_freed(void **state)
{
    struct cn_runtime *rt;
    struct fake fake = {0};

    (void)state;
    rt = must_open(
        "local kept = {}\n"
        "return { step = function(state, req)\n"
        "  if req.body == 'kept' then kept[#kept + 1] = torch.load('model.pt') return 1 end\n"
        "  if req.body == 'gone' then kept = {} collectgarbage() return 1 end\n"
        "  if req.body == 'close' then local m <close> = torch.load('model.pt')\n"
        "    m:run('again', { { datatype = 'FP32', shape = {1, 2}, data = {1, 2} },\n"
        "      { datatype = 'FP32', shape = {2, 1}, data = {1, 2} } }) return 1 end\n"
        "  return torch.load('model.pt'):schema() end }");
    for (int i = 0; i < 5; i++)
        assert_string_equal(fake_step(rt, &fake, "close"), "1");
    assert_int_equal(models_loaded(), 0);
    for (int i = 0; i < 1000; i++)
        assert_memory_equal(fake_step(rt, &fake, "lost"), "forward", 7);
    assert_true(models_loaded() <= 64);
    for (int i = 0; i < 64; i++)
        assert_string_equal(fake_step(rt, &fake, "kept"), "1");
    assert_int_equal(models_loaded(), 64);
    assert_non_null(strstr(fake_step(rt, &fake, "kept"), "64 TorchScript modules and methods are "
                                                         "open"));
    fake_step(rt, &fake, "gone");
    assert_int_equal(models_loaded(), 0);
    fake_step(rt, &fake, "kept");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
    assert_int_equal(models_loaded(), 0);
}

static const char *
metadata_of(const char *source)
{
    static struct fake fake;
    struct cn_runtime *rt = must_open(source);

    memset(&fake, 0, sizeof(fake));
    fake_metadata(rt, &fake);
    rt->ops->close(rt);
    return fake.text;
}

/* The server does not probe the modules of a handler. The description says so, unless the handler's
 * own description says something else. */
static void
metadata_says_that_no_probe_ran(void **state)
{
#define BATCHES "local m = torch.load('model.pt')\nlocal M = { batch = function(items) end }\n"
    (void)state;
    assert_string_equal(
        metadata_of("torch.load('model.pt') return { step = function() end }"),
        "{\"probe\":{\"result\":\"none\",\"reason\":\"the handler runs its TorchScript modules "
        "itself: "
        "the server has not tried whether a module keeps something from one sequence's run to the "
        "next "
        "one's; docs/torch.md says under \\\"Rows in a Lua handler\\\" how to try it\"}}");
    assert_string_equal(
        metadata_of(BATCHES "M.describe = function() return { words = 5 } end return M"),
        "{\"words\":5,\"probe\":{\"result\":\"none\",\"reason\":\"batch(items) of the handler "
        "composes "
        "the runs of its TorchScript modules: the server has not tried whether rows that run "
        "together "
        "change each other's results; docs/torch.md says under \\\"Rows in a Lua handler\\\" how "
        "to try "
        "it\"}}");
    assert_string_equal(
        metadata_of(BATCHES "M.describe = function() return { probe = 'alike' } end return M"),
        "{\"probe\":\"alike\"}");
    assert_string_equal(metadata_of(BATCHES "M.describe = function() return { 7 } end return M"),
                        "[7]");
    assert_string_equal(metadata_of("return { batch = function(items) end }"), "{}");
}

/* Without the library, a handler that loads no module works. A handler that loads one gets a
 * message that says how to get the library. */
static void
without_the_library(void **state)
{
    (void)state;
    load.torch_library = "/nowhere/libcontinuo_torch.so";
    assert_string_equal(reply_of("return type(torch.load)"), "function");
    assert_non_null(strstr(reply_of("torch.load('model.pt')"), "scripts/setup.sh --torch"));
    load.torch_library = NULL;
    assert_non_null(strstr(reply_of("torch.load('model.pt')"), "scripts/setup.sh --torch"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(runs_a_module, setup, teardown),
        cmocka_unit_test_setup_teardown(reads_and_sets_attributes, setup, teardown),
        cmocka_unit_test_setup_teardown(results_are_state, setup, teardown),
        cmocka_unit_test_setup_teardown(mistakes_are_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(arguments_that_run_code, setup, teardown),
        cmocka_unit_test_setup_teardown(modules_are_freed, setup, teardown),
        cmocka_unit_test_setup_teardown(metadata_says_that_no_probe_ran, setup, teardown),
        cmocka_unit_test_setup_teardown(without_the_library, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

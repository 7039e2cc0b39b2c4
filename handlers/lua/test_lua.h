/* handlers/lua/test_lua.h - runs Lua handlers in unit tests of the runtime. Only tests include it.
 */
#ifndef CN_HANDLERS_LUA_TEST_LUA_H
#define CN_HANDLERS_LUA_TEST_LUA_H

#include "handlers/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/log/log.h"
#include "core/test_support.h"
#include "handlers/c/testdata/fake_row.h"

static char dir[TEST_DIR_MAX];
static struct cn_load load;

static inline int
open_source(const char *source, const char *config, struct cn_runtime **rt, struct cn_error *err)
{
    test_dir_write(dir, "handler.lua", source);
    return cn_lua_runtime_ops.open(&load, cn_str_from(config), rt, err);
}

/* Returns a runtime for a handler that must load. */
static inline struct cn_runtime *
must_open(const char *source)
{
    struct cn_runtime *rt = NULL;
    struct cn_error err = {0};

    if (open_source(source, "{\"handler\":{\"rate\":0.5,\"none\":null}}", &rt, &err) != 0)
        fail_msg("%s", err.message);
    return rt;
}

/* Returns the load error of a handler that must not load. */
static inline const char *
load_error(const char *source)
{
    static struct cn_error err;
    struct cn_runtime *rt;

    assert_int_equal(open_source(source, "", &rt, &err), CN_E_LOAD_FAILED);
    return err.message;
}

/* Returns the reply of a handler whose step is `body`, to one request. */
static inline const char *
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

static inline int
test_lua_setup(void **state)
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

static inline int
test_lua_teardown(void **state)
{
    (void)state;
    return test_dir_remove(dir);
}

#endif

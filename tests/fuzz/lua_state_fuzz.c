/* cn_fuzz: core proto handlers */
/* tests/fuzz/lua_state_fuzz.c - stored states come from disk. The decoder must refuse the bytes or
 * make a table, and that table can be encoded and decoded again. It never crashes or leaks. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "handlers/runtime.h"
#include "tests/fuzz/fuzz.h"

static struct cn_runtime *
open_runtime(void)
{
    static char dir[] = "/tmp/cn-fuzz-XXXXXX";
    struct cn_load load = {.model_name = "m",
                           .model_version = "1",
                           .handler = "handler.lua",
                           .stateful = 1,
                           .memory_max_bytes = 64 << 20};
    struct cn_runtime *rt;
    struct cn_error err;
    char path[100];
    FILE *file;

    cn_log_set_level(CN_LOG_ERROR);
    load.model_dir = mkdtemp(dir);
    cn_assert(load.model_dir);
    snprintf(path, sizeof(path), "%s/handler.lua", dir);
    file = fopen(path, "w");
    cn_assert(file);
    fputs("return { step = function(state, req) return '' end }\n", file);
    fclose(file);
    cn_assert(cn_lua_runtime_ops.open(&load, CN_STR(""), &rt, &err) == 0);
    unlink(path);
    rmdir(dir);
    return rt;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static struct cn_runtime *rt;
    struct cn_str input = {(const char *)bytes, len};
    struct cn_buf first;
    struct cn_error err;
    void *state, *again;

    if (!rt)
        rt = open_runtime();
    if (rt->ops->state_decode(rt, input, 1, &state, &err) != 0)
        return 0;
    cn_buf_init(&first, 0);
    cn_assert(rt->ops->state_encode(rt, state, &first, &err) == 0);
    cn_assert(rt->ops->state_decode(rt, cn_buf_str(&first), 1, &again, &err) == 0);
    rt->ops->state_free(rt, again);
    rt->ops->state_free(rt, state);
    cn_buf_fini(&first);
    return 0;
}

/* cn_fuzz: core proto handlers */
/* tests/fuzz/lua_json_fuzz.c - any bytes as the JSON of a request's body, which a Lua handler reads
 * with req.json or continuo.json.decode.
 *
 * What is accepted is written again, and reading and writing that gives the same bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/time/clock.h"
#include "handlers/runtime.h"
#include "tests/fuzz/fuzz.h"

static const char handler[] =
    "return { step = function(state, req)\n"
    "  local value, why = continuo.json.decode(req.body)\n"
    "  if value == nil then return type(why) == 'string' and '' or 'no reason' end\n"
    "  local one = continuo.json.encode(value)\n"
    "  local again = continuo.json.decode(one)\n"
    "  return continuo.json.encode(again) == one and '' or 'another value'\n"
    "end }\n";

static struct cn_runtime *
open_runtime(void)
{
    static char dir[] = "/tmp/cn-fuzz-XXXXXX";
    struct cn_load load = {.model_name = "m",
                           .model_version = "1",
                           .handler = "handler.lua",
                           .memory_max_bytes = 256 << 20};
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
    fputs(handler, file);
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
    struct cn_part part = {CN_STR("body"), CN_STR(""), {(const char *)bytes, len}};
    struct cn_row row = {.job_id = 1, .parts = &part, .n_parts = 1};
    struct cn_item item = {.row = &row, .deadline_ms = CN_NEVER};
    struct cn_item *items[1] = {&item};

    if (!rt)
        rt = open_runtime();
    cn_reply_init(&item.reply, 64 << 20);
    rt->ops->run(rt, items, 1);
    cn_assert(item.reply.error_code == CN_E_OUT_OF_MEMORY ||
              (item.reply.error_code == 0 && item.reply.body.len == 0));
    cn_reply_fini(&item.reply);
    return 0;
}

/* cn_fuzz: core proto config kserve */
/* tests/fuzz/v2_admin_fuzz.c - bodies of administrative v2 requests: load, unload, shared memory,
 * log and trace settings; and the rules of restricted groups.
 *
 * Input: a byte that chooses, then the body. Everything that is written must be valid JSON.
 */
#include <stdint.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "kserve/access.h"
#include "kserve/json/json_words.h"
#include "kserve/repository_requests.h"
#include "kserve/settings.h"
#include "kserve/shared_memory.h"
#include "tests/fuzz/fuzz.h"

static void
expect_json(struct cn_buf *out)
{
    struct cn_error err;
    json_t *root;

    cn_assert(out->failed || cn_v2_json_load(cn_buf_str(out), &root, &err) == 0);
    if (!out->failed)
        json_decref(root);
}

static void
read_trace(struct cn_str body, struct cn_arena *arena, struct cn_buf *out)
{
    struct cn_str values[CN_TRACE_N_KEYS];
    struct cn_trace_change change;
    struct cn_error err;

    if (cn_trace_parse(body, &change, &err))
        return;
    cn_assert(cn_trace_apply(CN_STR(""), &change, &err) == 0);
    cn_trace_read(CN_STR(""), arena, values);
    cn_trace_write(values, out);
    (void)cn_trace_pick(CN_STR("m"));
    expect_json(out);
}

static void
read_log(struct cn_str body, struct cn_buf *out)
{
    struct cn_v2_log log;
    struct cn_error err;

    cn_v2_log_read(&log);
    if (cn_v2_log_parse(body, &log, &err) == 0) {
        cn_v2_log_write(&log, out);
        expect_json(out);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_str body = {(const char *)data + 1, size ? size - 1 : 0}, text;
    struct cn_shm_status region;
    struct cn_arena arena;
    struct cn_error err;
    struct cn_buf out;
    char *rules;

    if (size == 0)
        return 0;
    cn_arena_init(&arena);
    cn_buf_init(&out, 0);
    switch (data[0] % 6) {
    case 0:
        if (cn_v2_read_load(body, &arena, &text, &err) == 0)
            cn_assert(text.len <= body.len);
        break;
    case 1:
        (void)cn_v2_read_unload(body, &err);
        break;
    case 2:
        if (cn_shm_read_register(body, &arena, &region, &err) == 0)
            cn_assert(region.key.len <= body.len);
        break;
    case 3:
        read_log(body, &out);
        break;
    case 4:
        read_trace(body, &arena, &out);
        break;
    default:
        rules = cn_strndup(body.ptr, body.len);
        if (cn_v2_access_setup(CN_V2_HTTP, rules, NULL, &err) == 0)
            (void)cn_v2_access_check(CN_V2_HTTP, CN_V2_TRACE, NULL, 0, &err);
        cn_free(rules);
    }
    cn_buf_fini(&out);
    cn_arena_fini(&arena);
    return 0;
}

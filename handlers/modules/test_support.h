/* handlers/modules/test_support.h - batches of requests for tests of runtimes without a handler. A
 * request has one input x of FP32. */
#ifndef CN_HANDLERS_MODULES_TEST_SUPPORT_H
#define CN_HANDLERS_MODULES_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/arena.h"
#include "core/time/clock.h"
#include "handlers/runtime.h"
#include "proto/tensor.h"

#define ITEMS_MAX 8

/* Requests with one input x, and their results. */
struct batch {
    struct cn_arena arena;
    struct cn_part parts[ITEMS_MAX];
    struct cn_row rows[ITEMS_MAX];
    struct cn_item items[ITEMS_MAX], *list[ITEMS_MAX];
    float values[ITEMS_MAX][16];
};

static inline void
add(struct batch *batch, uint32_t i, const char *name, uint32_t rows, uint32_t width,
    const float *values)
{
    struct cn_tensor x = {
        .name = cn_str_from(name), .type = CN_DATATYPE_FP32, .rank = 2, .shape = {rows, width}};

    memcpy(batch->values[i], values, sizeof(float) * rows * width);
    x.data = (struct cn_str){(const char *)batch->values[i], sizeof(float) * rows * width};
    batch->parts[i] = cn_tensor_part(&x, &batch->arena);
    batch->rows[i] = (struct cn_row){.parts = &batch->parts[i], .n_parts = 1};
    batch->items[i].row = &batch->rows[i];
    batch->items[i].deadline_ms = CN_NEVER;
    batch->list[i] = &batch->items[i];
    cn_reply_init(&batch->items[i].reply, 10000);
}

/* Does what a worker does after an error: drops the state. */
static inline void
end(struct cn_runtime *rt, struct batch *batch, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (batch->items[i].reply.error_code != 0) {
            rt->ops->state_free(rt, batch->items[i].state);
            batch->items[i].state = NULL;
        }
        cn_reply_fini(&batch->items[i].reply);
    }
    cn_arena_fini(&batch->arena);
}

static inline void
drop(struct cn_runtime *rt, struct batch *batch)
{
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        rt->ops->state_free(rt, batch->items[i].state);
    rt->ops->close(rt);
}

static inline const struct cn_tensor *
output(struct batch *batch, uint32_t i, uint32_t which)
{
    struct cn_tensor *tensors;
    struct cn_error err = {0};
    uint32_t n;

    if (batch->items[i].reply.error_code != 0)
        fail_msg("%.*s", CN_STR_ARG(cn_buf_str(&batch->items[i].reply.body)));
    assert_int_equal(
        cn_tensors_get(cn_buf_str(&batch->items[i].reply.body), &batch->arena, &tensors, &n, &err),
        0);
    assert_true(which < n);
    return &tensors[which];
}

static inline float
value(struct batch *batch, uint32_t i, uint32_t at)
{
    float out;

    memcpy(&out, output(batch, i, 0)->data.ptr + at * sizeof(out), sizeof(out));
    return out;
}

static inline void
fails_with(struct batch *batch, uint32_t i, int code, const char *words)
{
    struct cn_reply *reply = &batch->items[i].reply;

    assert_int_equal(reply->error_code, code);
    cn_buf_append(&reply->body, "", 1);
    if (!strstr(reply->body.data, words))
        fail_msg("\"%s\" is not in \"%s\"", words, reply->body.data);
}

static inline char *
told_of(struct cn_runtime *rt)
{
    struct cn_item item = {.deadline_ms = CN_NEVER};
    char *text;

    cn_reply_init(&item.reply, 10000);
    rt->ops->metadata(rt, &item);
    cn_buf_append(&item.reply.body, "", 1);
    text = strdup(item.reply.body.data);
    cn_reply_fini(&item.reply);
    return text;
}

static inline double
sample_of(const struct cn_runtime *rt, const char *name)
{
    for (uint32_t i = 0; i < rt->samples.n; i++)
        if (cn_str_eq(rt->samples.list[i].name, cn_str_from(name)))
            return rt->samples.list[i].value;
    return 0;
}

#endif

/* cn_fuzz: core frontend */
/* tests/fuzz/form_fuzz.c - any bytes as a form.
 *
 * Input: the Content-Type, a line end, the body. Besides memory errors it checks that parts are
 * within their bounds and that data lies inside the body.
 */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "frontend/http/form.h"
#include "tests/fuzz/fuzz.h"

#define PARTS_MAX 16

static void
check(const struct cn_parts *parts, struct cn_str body, bool inside)
{
    cn_assert(parts->n <= PARTS_MAX);
    for (uint32_t i = 0; i < parts->n; i++) {
        const struct cn_part *part = &parts->list[i];

        cn_assert(part->name.len > 0 || !inside);
        cn_assert(part->name.len <= CN_FORM_NAME_MAX);
        cn_assert(part->content_type.len <= CN_FORM_NAME_MAX);
        cn_assert(part->data.len <= body.len);
        if (inside)
            cn_assert(part->data.ptr >= body.ptr &&
                      part->data.ptr + part->data.len <= body.ptr + body.len);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_str all = {(const char *)data, size}, type = all, body = {all.ptr + size, 0};
    const char *end = size ? memchr(all.ptr, '\n', size) : NULL;
    struct cn_parts parts = {.max = PARTS_MAX};
    struct cn_arena arena;

    if (end) {
        type.len = (size_t)(end - all.ptr);
        body = (struct cn_str){end + 1, size - type.len - 1};
    }
    cn_arena_init(&arena);
    cn_form_multipart(&arena, type, body, &parts, NULL);
    check(&parts, body, true);
    parts = (struct cn_parts){.max = PARTS_MAX};
    cn_form_urlencoded(&arena, body, &parts, NULL);
    check(&parts, body, false);
    cn_arena_fini(&arena);
    return 0;
}

/* cn_fuzz: core proto */
/* tests/fuzz/tensor_fuzz.c - any bytes as packed sets of tensors and as content types of parts.
 *
 * Accepted tensors are packed again to the same bytes.
 */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "proto/tensor.h"
#include "tests/fuzz/fuzz.h"

static void
check_set(struct cn_str bytes, struct cn_arena *arena)
{
    struct cn_tensor *tensors;
    struct cn_error err;
    struct cn_buf again;
    uint32_t n;

    if (cn_tensors_get(bytes, arena, &tensors, &n, &err))
        return;
    cn_buf_init(&again, 0);
    cn_tensors_put(&again, tensors, n);
    cn_assert(cn_str_eq(cn_buf_str(&again), bytes));
    cn_buf_fini(&again);
}

static void
check_part(struct cn_str text, struct cn_arena *arena)
{
    struct cn_part part = {.name = CN_STR("x"), .content_type = text}, again;
    struct cn_tensor tensor, back;

    if (!cn_tensor_of_part(&part, &tensor))
        return;
    again = cn_tensor_part(&tensor, arena);
    cn_assert(cn_tensor_of_part(&again, &back));
    cn_assert(back.type == tensor.type && back.rank == tensor.rank);
    cn_assert(memcmp(back.shape, tensor.shape, sizeof(back.shape[0]) * back.rank) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_str bytes = {(const char *)data, size};
    struct cn_arena arena;

    cn_arena_init(&arena);
    check_set(bytes, &arena);
    check_part(bytes, &arena);
    cn_arena_fini(&arena);
    return 0;
}

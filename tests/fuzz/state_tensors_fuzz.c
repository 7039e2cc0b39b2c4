/* cn_fuzz: core proto */
/* tests/fuzz/state_tensors_fuzz.c - any bytes as the stored state of a model that declares its
 * tensors.
 *
 * Accepted tensors fit the declaration, and are the same when they are stored and read again.
 */
#include <stdint.h>
#include <string.h>

#include "core/errors/panic.h"
#include "proto/state_tensors.h"
#include "tests/fuzz/fuzz.h"

static struct cn_state_spec items[] = {
    {.input = CN_STR("A"),
     .output = CN_STR("B"),
     .type = CN_DATATYPE_INT32,
     .rank = 1,
     .dims = {1}},
    {.input = CN_STR("h"),
     .output = CN_STR("h"),
     .type = CN_DATATYPE_FP16,
     .rank = 2,
     .dims = {2, -1},
     .batch_axis = 1},
    {.input = CN_STR("w"),
     .output = CN_STR("w"),
     .type = CN_DATATYPE_BYTES,
     .rank = 1,
     .dims = {-1}},
};

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cn_state_specs specs = {.n = 3, .batched = true, .items = items};
    struct cn_str bytes = {(const char *)data, size};
    struct cn_tensor out[3], back[3];
    struct cn_error err = {0};
    struct cn_arena arena;
    struct cn_buf again;

    cn_arena_init(&arena);
    cn_buf_init(&again, 0);
    if (cn_state_unpack(&specs, bytes, &arena, out, &err) == 0) {
        cn_state_pack(&specs, out, &again);
        cn_assert(again.len == size); /* the order may differ */
        cn_assert(cn_state_unpack(&specs, cn_buf_str(&again), &arena, back, NULL) == 0);
        for (int i = 0; i < 3; i++) {
            struct cn_tensor row = out[i], stored;

            cn_assert(cn_str_eq(out[i].data, back[i].data));
            cn_state_to_row(&specs, &items[i], &row);
            cn_assert(
                cn_state_from_row(&specs, &items[i], &row, "x", CN_E_INTERNAL, &stored, NULL) == 0);
            cn_assert(stored.rank == out[i].rank &&
                      memcmp(stored.shape, out[i].shape, sizeof(int64_t) * stored.rank) == 0);
        }
    } else {
        cn_assert(err.code == CN_E_STATE_STORE && err.message[0]);
    }
    cn_buf_fini(&again);
    cn_arena_fini(&arena);
    return 0;
}

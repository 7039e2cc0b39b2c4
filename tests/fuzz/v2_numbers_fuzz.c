/* cn_fuzz: core proto config kserve */
/* tests/fuzz/v2_numbers_fuzz.c - any bytes as an array of numbers for the fast path, which reads
 * them without a JSON document.
 *
 * Input: a byte that chooses the datatype, one with the number of elements, then the array. The
 * fast path must read what the JSON document says.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "kserve/json/json_numbers.h"
#include "kserve/json/json_values.h"
#include "kserve/json/json_words.h"
#include "tests/fuzz/fuzz.h"

#define N_TYPES 14
#define ARRAY_MAX 4096

static void
hold_against_document(const struct cn_tensor *read, struct cn_str array, struct cn_arena *arena)
{
    struct cn_tensor tensor = *read;
    struct cn_error err;
    json_t *root;

    cn_assert(cn_v2_json_load(array, &root, &err) == 0);
    cn_assert(cn_v2_values(root, 1 << 20, arena, &tensor, &err) == 0);
    cn_assert(cn_str_eq(tensor.data, read->data));
    json_decref(root);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_tensor tensor = {.name = CN_STR("x"), .rank = 1};
    char text[ARRAY_MAX + 32];
    struct cn_v2_cuts cuts;
    struct cn_arena arena;
    int len;

    if (size < 2 || size > ARRAY_MAX)
        return 0;
    tensor.type = (enum cn_datatype)(CN_DATATYPE_NONE + 1 + data[0] % N_TYPES);
    tensor.shape[0] = data[1];
    len = sprintf(text, "{\"inputs\":[{\"data\":");
    memcpy(text + len, data + 2, size - 2);
    memcpy(text + len + size - 2, "}]}", 3);
    if (!cn_v2_cut((struct cn_str){text, (size_t)len + size + 1}, &cuts))
        return 0;
    cn_arena_init(&arena);
    if (cn_v2_cut_values(&cuts, 0, 1 << 20, &arena, &tensor))
        hold_against_document(&tensor, cuts.at[0], &arena);
    cn_arena_fini(&arena);
    return 0;
}

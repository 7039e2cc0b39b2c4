/* kserve/classify_test.c - tests finding the largest values of an output, against sorting all of
 * them. */
#include "kserve/classify.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/mem.h"
#include "proto/wire.h"

#define ROW 500

/* Finds the value of this rank by the documented rule: larger values first, then lower indices, NaN
 * last. */
static size_t
nth(const float *values, size_t n, size_t rank)
{
    for (size_t i = 0; i < n; i++) {
        size_t before = 0;

        for (size_t k = 0; k < n; k++) {
            const bool equal = values[k] == values[i] || (isnan(values[k]) && isnan(values[i]));

            before += equal ? k < i : isnan(values[i]) ? true : values[k] > values[i];
        }
        if (before == rank)
            return i;
    }
    fail();
    return 0;
}

static void
check(const float *values, uint32_t rows, uint64_t classes)
{
    struct cn_v2_output wanted = {.name = CN_STR("Y"), .classes = classes};
    struct cn_v2_request request = {.n_outputs = 1, .outputs = &wanted};
    struct cn_model_io io = {.max_batch_size = rows};
    struct cn_tensor tensor = {.name = CN_STR("Y"),
                               .type = CN_DATATYPE_FP32,
                               .rank = 2,
                               .shape = {rows, ROW},
                               .data = {(const char *)values, rows * ROW * sizeof(float)}};
    struct cn_reader reader;
    struct cn_arena arena;
    struct cn_error err;

    cn_arena_init(&arena);
    assert_int_equal(cn_v2_classify(&request, &io, &arena, &tensor, 1, &err), 0);
    classes = classes < ROW ? classes : ROW;
    assert_int_equal(tensor.type, CN_DATATYPE_BYTES);
    assert_int_equal(tensor.shape[0], rows);
    assert_int_equal(tensor.shape[1], classes);
    cn_reader_init(&reader, tensor.data.ptr, tensor.data.len);
    for (uint32_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < classes; c++) {
            const size_t i = nth(values + r * ROW, ROW, c);
            char expected[64];
            struct cn_str got;

            assert_true(cn_tensor_next(&reader, &got));
            snprintf(expected, sizeof(expected), "%.6f:%zu", (double)values[r * ROW + i], i);
            assert_int_equal(got.len, strlen(expected));
            assert_memory_equal(got.ptr, expected, got.len);
        }
    assert_ptr_equal(reader.at, reader.end);
    cn_arena_fini(&arena);
}

static void
the_largest_come_first(void **state)
{
    static const uint64_t classes[] = {1, 2, 3, 10, ROW - 1, ROW, 5 * ROW};
    static float values[3 * ROW];

    (void)state;
    srand(8);
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < 3 * ROW; i++)
            values[i] = kind == 0    ? (float)i             /* each value larger than all before */
                        : kind == 1  ? (float)-i            /* each value smaller */
                        : kind == 2  ? (float)(rand() % 9)  /* many equal values */
                        : rand() % 5 ? (float)rand() / 1000 /* NaN, also at the start */
                                     : (i % 2    ? NAN
                                        : i < 99 ? NAN
                                                 : -INFINITY);
        for (size_t c = 0; c < sizeof(classes) / sizeof(classes[0]); c++)
            check(values, 3, classes[c]);
    }
}

static void
of_nothing_there_is_nothing(void **state)
{
    struct cn_v2_output wanted = {.name = CN_STR("Y"), .classes = 3};
    struct cn_v2_request request = {.n_outputs = 1, .outputs = &wanted};
    struct cn_model_io io = {.max_batch_size = 8};
    struct cn_tensor tensor = {
        .name = CN_STR("Y"), .type = CN_DATATYPE_FP32, .rank = 2, .shape = {4, 0}};
    struct cn_arena arena;
    struct cn_error err;

    (void)state;
    cn_arena_init(&arena);
    assert_int_equal(cn_v2_classify(&request, &io, &arena, &tensor, 1, &err), 0);
    assert_int_equal(tensor.data.len, 0);
    assert_int_equal(tensor.shape[1], 0);
    cn_arena_fini(&arena);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_come_first),
        cmocka_unit_test(of_nothing_there_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

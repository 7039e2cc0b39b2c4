/* proto/tensor_test.c - tests that tensors are read as they were packed, and that malformed ones
 * are refused. */
#include "proto/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct cn_tensor floats = {.name = CN_STR("A"),
                                        .type = CN_DATATYPE_FP32,
                                        .rank = 2,
                                        .shape = {1, 2},
                                        .data = CN_STR("\0\0\200?\0\0\0@")};
static const struct cn_tensor words = {.name = CN_STR("S"),
                                       .type = CN_DATATYPE_BYTES,
                                       .rank = 1,
                                       .shape = {2},
                                       .data = CN_STR("\2\0\0\0hi\3\0\0\0bye")};

/* Both spellings of a datatype lead to it: clients write FP32, configurations TYPE_FP32. */
static void
datatypes_have_two_spellings(void **state)
{
    (void)state;
    for (int type = CN_DATATYPE_BOOL; type <= CN_DATATYPE_BF16; type++) {
        assert_int_equal(cn_datatype_parse(cn_str_from(cn_datatype_word(type))), type);
        assert_int_equal(cn_datatype_parse(cn_str_from(cn_datatype_config_word(type))), type);
    }
    assert_int_equal(cn_datatype_parse(CN_STR("fp32")), CN_DATATYPE_NONE);
    assert_null(cn_datatype_word((enum cn_datatype)200));
    assert_int_equal(cn_datatype_bytes(CN_DATATYPE_BYTES), 0);
}

/* A product that overflows is refused; a zero dimension makes any other harmless. */
static void
elements_never_overflow(void **state)
{
    const int64_t huge[] = {INT64_MAX, 2}, empty[] = {INT64_MAX, 4, 0}, negative[] = {2, -1};
    uint64_t n;

    (void)state;
    assert_false(cn_shape_elements(huge, 2, &n));
    assert_false(cn_shape_elements(negative, 2, &n));
    assert_true(cn_shape_elements(empty, 3, &n));
    assert_int_equal(n, 0);
    assert_true(cn_shape_elements(huge, 0, &n));
    assert_int_equal(n, 1);
}

/* The size must be that of type and shape; elements of BYTES are counted one by one. */
static void
data_must_fit_its_shape(void **state)
{
    struct cn_tensor tensor = floats;
    struct cn_error err;

    (void)state;
    assert_int_equal(cn_tensor_check(&tensor, &err), 0);
    tensor.data.len--;
    assert_int_equal(cn_tensor_check(&tensor, &err), CN_E_BAD_REQUEST);
    tensor = words;
    assert_int_equal(cn_tensor_check(&tensor, &err), 0);
    tensor.shape[0] = 3;
    assert_int_equal(cn_tensor_check(&tensor, &err), CN_E_BAD_REQUEST);
    tensor.shape[0] = 2;
    tensor.data.len--;
    assert_int_equal(cn_tensor_check(&tensor, &err), CN_E_BAD_REQUEST);
}

/* A part carries type and shape in its content type; anything else is not a tensor. */
static void
a_part_is_a_tensor_and_back(void **state)
{
    static const char *const others[] = {"",
                                         "tensor/",
                                         "tensor/FP32",
                                         "tensor/FP32[1",
                                         "tensor/FP32[1,]",
                                         "tensor/FP32[1]x",
                                         "tensor/FP32[-1]",
                                         "tensor/fp32[1]",
                                         "tensor/FP32[99999999999999999999]",
                                         "tensor/FP32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
                                         "application/json"};
    struct cn_arena arena;
    struct cn_tensor out,
        scalar = {.name = CN_STR("x"), .type = CN_DATATYPE_INT8, .data = CN_STR("a")};
    struct cn_part part;

    (void)state;
    cn_arena_init(&arena);
    part = cn_tensor_part(&floats, &arena);
    assert_true(cn_str_eq(part.content_type, CN_STR("tensor/FP32[1,2]")));
    assert_true(cn_tensor_of_part(&part, &out));
    assert_int_equal(out.type, CN_DATATYPE_FP32);
    assert_int_equal(out.rank, 2);
    assert_int_equal(out.shape[1], 2);
    assert_ptr_equal(out.data.ptr, floats.data.ptr);
    part = cn_tensor_part(&scalar, &arena);
    assert_true(cn_tensor_of_part(&part, &out));
    assert_int_equal(out.rank, 0);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        part.content_type = cn_str_from(others[i]);
        assert_false(cn_tensor_of_part(&part, &out));
    }
    cn_arena_fini(&arena);
}

/* A set is read as it was packed. If it is cut anywhere, or has one byte too many, it is refused.
 */
static void
a_set_is_whole_or_refused(void **state)
{
    struct cn_tensor set[2] = {floats, words}, *out;
    struct cn_arena arena;
    struct cn_error err;
    struct cn_buf buf;
    uint32_t n;

    (void)state;
    cn_arena_init(&arena);
    cn_buf_init(&buf, 0);
    cn_tensors_put(&buf, set, 2);
    assert_int_equal(cn_tensors_get(cn_buf_str(&buf), &arena, &out, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_true(cn_str_eq(out[1].name, CN_STR("S")));
    assert_true(cn_str_eq(out[1].data, words.data));
    assert_int_equal(out[0].shape[0], 1);
    for (size_t len = 0; len < buf.len; len++)
        assert_int_equal(cn_tensors_get((struct cn_str){buf.data, len}, &arena, &out, &n, &err),
                         CN_E_PROTOCOL);
    cn_buf_append(&buf, "x", 1);
    assert_int_equal(cn_tensors_get(cn_buf_str(&buf), &arena, &out, &n, &err), CN_E_PROTOCOL);
    cn_buf_fini(&buf);
    cn_arena_fini(&arena);
}

/* Statistics use this count. A shape that the model cannot have counts as one row. */
static void
a_row_counts_by_its_batch_dimension(void **state)
{
    struct cn_tensor tensor = {
        .name = CN_STR("X"), .type = CN_DATATYPE_BOOL, .rank = 2, .shape = {3, 2}};
    struct cn_part part;
    struct cn_row row = {.n_parts = 1, .parts = &part};
    struct cn_arena arena;

    (void)state;
    cn_arena_init(&arena);
    part = cn_tensor_part(&tensor, &arena);
    assert_int_equal(cn_tensor_batch(&row, 4), 3);
    assert_int_equal(cn_tensor_batch(&row, 0), 1);
    assert_int_equal(cn_tensor_batch(&row, 2), 1);
    tensor.rank = 0;
    part = cn_tensor_part(&tensor, &arena);
    assert_int_equal(cn_tensor_batch(&row, 4), 1);
    row.n_parts = 0;
    assert_int_equal(cn_tensor_batch(&row, 4), 1);
    cn_arena_fini(&arena);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(datatypes_have_two_spellings),
        cmocka_unit_test(elements_never_overflow),
        cmocka_unit_test(data_must_fit_its_shape),
        cmocka_unit_test(a_part_is_a_tensor_and_back),
        cmocka_unit_test(a_set_is_whole_or_refused),
        cmocka_unit_test(a_row_counts_by_its_batch_dimension),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

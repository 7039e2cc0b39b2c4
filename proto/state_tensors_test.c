/* proto/state_tensors_test.c - a sequence's state comes back as it was kept, and only to a model
 * that declares it so. */
#include "proto/state_tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct cn_state_spec items[] = {
    {.input = CN_STR("SUM_IN"),
     .output = CN_STR("SUM_OUT"),
     .type = CN_DATATYPE_INT32,
     .rank = 1,
     .dims = {1},
     .init_dims = {1}},
    {.input = CN_STR("h"),
     .output = CN_STR("h"),
     .type = CN_DATATYPE_FP32,
     .rank = 2,
     .dims = {2, -1},
     .batch_axis = 1,
     .init_dims = {2, 1}},
    {.input = CN_STR("words"),
     .output = CN_STR("words"),
     .type = CN_DATATYPE_BYTES,
     .rank = 1,
     .dims = {-1},
     .init_dims = {2}},
};
static const struct cn_state_specs three = {.n = 3, .items = items};
static const struct cn_state_specs batched = {.n = 3, .batched = true, .items = items};

static void
begin_all(const struct cn_state_specs *specs, struct cn_arena *arena, struct cn_tensor *out)
{
    for (uint32_t i = 0; i < specs->n; i++)
        assert_int_equal(cn_state_initial(&specs->items[i], CN_STR(""), arena, &out[i], NULL), 0);
}

/* A new state has zeros in its declared shape; strings are empty. */
static void
a_new_state_is_zeros(void **state)
{
    struct cn_tensor tensors[3];
    struct cn_arena arena;

    (void)state;
    cn_arena_init(&arena);
    begin_all(&three, &arena, tensors);
    assert_int_equal(tensors[0].data.len, 4);
    assert_memory_equal(tensors[0].data.ptr, "\0\0\0\0", 4);
    assert_int_equal(tensors[1].shape[1], 1);
    assert_int_equal(tensors[1].data.len, 8);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cn_tensor_check(&tensors[i], NULL), 0);
    cn_arena_fini(&arena);
}

/* A file with a first value must have exactly the declared size. */
static void
a_file_must_fit(void **state)
{
    struct cn_state_spec spec = items[0];
    struct cn_tensor tensor;
    struct cn_error err;

    (void)state;
    spec.init = CN_STATE_FILE;
    spec.init_from = CN_STR("begin.bin");
    assert_int_equal(cn_state_initial(&spec, CN_STR("\5\0\0\0"), NULL, &tensor, &err), 0);
    assert_int_equal(tensor.data.ptr[0], 5);
    assert_int_equal(cn_state_initial(&spec, CN_STR("\5\0\0"), NULL, &tensor, &err), CN_E_CONFIG);
    assert_non_null(strstr(err.message, "begin.bin"));
    assert_non_null(strstr(err.message, "3 bytes"));
}

static void
packed_and_back(void **state)
{
    struct cn_tensor tensors[3], back[3];
    struct cn_error err;
    struct cn_arena arena;
    struct cn_buf bytes;

    (void)state;
    cn_arena_init(&arena);
    cn_buf_init(&bytes, 0);
    begin_all(&three, &arena, tensors);
    tensors[0].data = CN_STR("\7\0\0\0");
    tensors[0].name = CN_STR("SUM_OUT"); /* the declaration's names are kept, not the tensors' */
    tensors[2].shape[0] = 1;
    tensors[2].data = CN_STR("\2\0\0\0hi");
    cn_state_pack(&three, tensors, &bytes);
    assert_int_equal(cn_state_unpack(&three, cn_buf_str(&bytes), &arena, back, &err), 0);
    assert_true(cn_str_eq(back[0].name, CN_STR("SUM_IN")));
    assert_int_equal(back[0].data.ptr[0], 7);
    assert_true(cn_str_eq(back[2].data, tensors[2].data));
    cn_buf_fini(&bytes);
    cn_arena_fini(&arena);
}

/* The order in the YAML does not belong to the format. */
static void
order_may_change(void **state)
{
    struct cn_state_spec other[3] = {items[2], items[0], items[1]};
    const struct cn_state_specs swapped = {.n = 3, .items = other};
    struct cn_tensor tensors[3], back[3];
    struct cn_arena arena;
    struct cn_buf bytes;

    (void)state;
    cn_arena_init(&arena);
    cn_buf_init(&bytes, 0);
    begin_all(&three, &arena, tensors);
    cn_state_pack(&three, tensors, &bytes);
    assert_int_equal(cn_state_unpack(&swapped, cn_buf_str(&bytes), &arena, back, NULL), 0);
    assert_true(cn_str_eq(back[0].name, CN_STR("words")));
    assert_true(cn_str_eq(back[1].name, CN_STR("SUM_IN")));
    cn_buf_fini(&bytes);
    cn_arena_fini(&arena);
}

static void
refused(const struct cn_state_specs *specs, struct cn_str bytes, const char *why)
{
    struct cn_tensor out[4];
    struct cn_error err = {0};
    struct cn_arena arena;

    cn_arena_init(&arena);
    assert_int_equal(cn_state_unpack(specs, bytes, &arena, out, &err), CN_E_STATE_STORE);
    if (!strstr(err.message, why))
        fail_msg("\"%s\" is not in \"%s\"", why, err.message);
    cn_arena_fini(&arena);
}

/* A version that declares another state must not take this one for its own. */
static void
another_declaration_refuses(void **state)
{
    struct cn_state_spec other[4] = {items[0], items[1], items[2], items[0]};
    struct cn_state_specs specs = {.n = 4, .items = other};
    struct cn_tensor tensors[3];
    struct cn_arena arena;
    struct cn_buf bytes;

    (void)state;
    cn_arena_init(&arena);
    cn_buf_init(&bytes, 0);
    begin_all(&three, &arena, tensors);
    cn_state_pack(&three, tensors, &bytes);
    other[3].input = other[3].output = CN_STR("more");
    refused(&specs, cn_buf_str(&bytes), "lacks the tensor 'more'");
    specs.n = 2;
    refused(&specs, cn_buf_str(&bytes), "has a tensor 'words' that the model does not declare");
    specs.n = 3;
    other[0].type = CN_DATATYPE_FP32;
    refused(&specs, cn_buf_str(&bytes),
            "the stored state 'SUM_IN' is INT32[1], but the model declares FP32[1]");
    other[0] = items[0];
    other[1].dims[0] = 3;
    refused(&specs, cn_buf_str(&bytes), "'h' is FP32[2,1], but the model declares FP32[3,-1]");
    cn_buf_fini(&bytes);
    cn_arena_fini(&arena);
}

static void
other_bytes_are_refused(void **state)
{
    struct cn_tensor tensors[3];
    struct cn_arena arena;
    struct cn_buf bytes;

    (void)state;
    refused(&three, CN_STR(""), "the stored state (0 bytes) does not hold the tensors");
    refused(&three, CN_STR("\x81\xa1n\1"), "a handler that kept its state itself wrote it");
    refused(&three, CN_STR("CNTS\2\0\0\0\0\0\0\0"), "format 2; this program reads format 1");
    refused(&three, CN_STR("CNTS\1\0\0\0\1\0\0\0"), "damaged state");
    cn_arena_init(&arena);
    cn_buf_init(&bytes, 0);
    begin_all(&three, &arena, tensors);
    cn_state_pack(&three, tensors, &bytes);
    for (size_t len = 0; len < bytes.len; len++)
        assert_int_equal(cn_state_unpack(&three, (struct cn_str){bytes.data, len}, &arena,
                                         (struct cn_tensor[3]){0}, NULL),
                         CN_E_STATE_STORE);
    cn_buf_fini(&bytes);
    cn_arena_fini(&arena);
}

/* If the model has a batch dimension, a row has it at the declared axis. */
static void
rows_have_the_batch_dimension(void **state)
{
    struct cn_tensor tensors[3], row, back;
    struct cn_error err;
    struct cn_arena arena;

    (void)state;
    cn_arena_init(&arena);
    begin_all(&batched, &arena, tensors);
    row = tensors[1];
    cn_state_to_row(&batched, &items[1], &row);
    assert_int_equal(row.rank, 3);
    assert_int_equal(row.shape[0], 2);
    assert_int_equal(row.shape[1], 1);
    assert_int_equal(row.shape[2], 1);
    assert_int_equal(
        cn_state_from_row(&batched, &items[1], &row, "output", CN_E_HANDLER_FAILED, &back, &err),
        0);
    assert_int_equal(back.rank, 2);
    row = tensors[0];
    cn_state_to_row(&three, &items[0], &row);
    assert_int_equal(row.rank, 1);
    cn_arena_fini(&arena);
}

static void
rows_must_fit_the_declaration(void **state)
{
    struct cn_tensor row = {.name = CN_STR("SUM_OUT"),
                            .type = CN_DATATYPE_INT32,
                            .rank = 1,
                            .shape = {2},
                            .data = CN_STR("\1\0\0\0\2\0\0\0")};
    struct cn_tensor back;
    struct cn_error err;

    (void)state;
    assert_int_equal(cn_state_from_row(&three, &items[0], &row, "state output", CN_E_HANDLER_FAILED,
                                       &back, &err),
                     CN_E_HANDLER_FAILED);
    assert_string_equal(err.message,
                        "state output 'SUM_OUT' is INT32[2]; the model declares INT32[1]");
    row.shape[0] = 1;
    assert_int_equal(cn_state_from_row(&batched, &items[0], &row, "state output",
                                       CN_E_HANDLER_FAILED, &back, &err),
                     CN_E_HANDLER_FAILED);
    assert_string_equal(err.message, "state output 'SUM_OUT' is INT32[1]; the model declares "
                                     "INT32[1,1], including the batch dimension");
    assert_int_equal(cn_state_from_row(&three, &items[0], &row, "state output", CN_E_HANDLER_FAILED,
                                       &back, &err),
                     0);
    assert_true(cn_str_eq(back.name, CN_STR("SUM_IN")));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_state_is_zeros),
        cmocka_unit_test(a_file_must_fit),
        cmocka_unit_test(packed_and_back),
        cmocka_unit_test(order_may_change),
        cmocka_unit_test(another_declaration_refuses),
        cmocka_unit_test(other_bytes_are_refused),
        cmocka_unit_test(rows_have_the_batch_dimension),
        cmocka_unit_test(rows_must_fit_the_declaration),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

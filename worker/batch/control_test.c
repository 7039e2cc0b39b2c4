/* worker/batch/control_test.c - tests the control tensors of rows, and the row of padding. */
#include "worker/batch/control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "config/model/batching.h"
#include "proto/tensor.h"

static struct cn_model_io *io;
static struct cn_arena arena;

/* `corrid` is the type of the CORRID control. */
static void
open_with(const char *corrid, unsigned max_batch_size)
{
    char text[900];
    struct cn_yaml_doc *doc;
    struct cn_error err;

    snprintf(text, sizeof(text),
             "max_batch_size: %u\n"
             "input: [{name: A, data_type: TYPE_INT32, dims: [1]}]\n"
             "output: [{name: A, data_type: TYPE_INT32, dims: [1]}]\n"
             "sequence_batching:\n  control_input:\n"
             "  - {name: S, control: [{kind: CONTROL_SEQUENCE_START, int32_false_true: [-1, 7]}]}\n"
             "  - {name: E, control: [{kind: CONTROL_SEQUENCE_END, bool_false_true: [false, "
             "true]}]}\n"
             "  - {name: R, control: [{kind: CONTROL_SEQUENCE_READY, fp32_false_true: [0, 2]}]}\n"
             "  - {name: C, control: [{kind: CONTROL_SEQUENCE_CORRID, data_type: %s}]}\n",
             max_batch_size, corrid);
    assert_int_equal(cn_yaml_parse("m.yaml", cn_str_from(text), &doc, &err), 0);
    assert_int_equal(cn_model_io_parse(doc, &io, &err), 0);
    assert_int_equal(cn_batching_parse(doc, "m", io, &err), 0);
    cn_yaml_destroy(doc);
    cn_arena_init(&arena);
}

static void
done(void)
{
    cn_model_io_unref(io);
    cn_arena_fini(&arena);
}

/* Expects that the part of this name is this tensor. */
static void
has(const struct cn_row *row, const char *name, const char *type, const void *bytes, size_t len)
{
    for (uint32_t i = 0; i < row->n_parts; i++) {
        if (!cn_str_eq(row->parts[i].name, cn_str_from(name)))
            continue;
        assert_true(cn_str_eq(row->parts[i].content_type, cn_str_from(type)));
        assert_int_equal(row->parts[i].data.len, len);
        assert_memory_equal(row->parts[i].data.ptr, bytes, len);
        return;
    }
    fail_msg("no part %s", name);
}

/* Controls come after the inputs, in their declared types, and with the batch dimension if there is
 * one. */
static void
controls_follow_the_inputs(void **state)
{
    struct cn_part input = {CN_STR("A"), CN_STR("tensor/INT32[1,1]"), CN_STR("1234")};
    struct cn_row row = {.flags = CN_ROW_STATEFUL | CN_ROW_END,
                         .sequence_id = CN_STR("\x01"
                                               "4294967303"),
                         .n_parts = 1,
                         .parts = &input};
    const int32_t yes = 7, no = -1;
    const uint32_t low = 7;
    const float ready = 2;
    const struct cn_row *more;
    struct cn_error err;

    (void)state;
    open_with("TYPE_UINT32", 4);
    more = cn_controls_add(io, &row, true, &arena, &err);
    assert_int_equal(more->n_parts, 5);
    assert_int_equal(row.n_parts, 1);
    has(more, "A", "tensor/INT32[1,1]", "1234", 4);
    has(more, "S", "tensor/INT32[1,1]", &yes, 4);
    has(more, "E", "tensor/BOOL[1,1]", "\1", 1);
    has(more, "R", "tensor/FP32[1,1]", &ready, 4);
    has(more, "C", "tensor/UINT32[1,1]", &low, 4);
    has(cn_controls_add(io, &row, false, &arena, &err), "S", "tensor/INT32[1,1]", &no, 4);
    done();
}

/* An id of the wrong kind is the client's mistake. A text id is preceded by its length. */
static void
ids_have_their_kind(void **state)
{
    struct cn_row row = {.flags = CN_ROW_STATEFUL, .sequence_id = CN_STR("abc")};
    struct cn_error err;

    (void)state;
    open_with("TYPE_INT64", 0);
    assert_null(cn_controls_add(io, &row, true, &arena, &err));
    assert_int_equal(err.code, CN_E_BAD_REQUEST);
    assert_non_null(strstr(err.message, "'C' is INT64, so the sequence id must be an integer"));
    done();
    open_with("TYPE_STRING", 0);
    has(cn_controls_add(io, &row, true, &arena, &err), "C", "tensor/BYTES[1]", "\3\0\0\0abc", 7);
    row.sequence_id = CN_STR("\x01"
                             "5");
    assert_null(cn_controls_add(io, &row, true, &arena, &err));
    assert_non_null(strstr(err.message, "must be a text"));
    done();
}

/* Padding has zeros and empty strings in the shape of a real row, and its controls are false. */
static void
padding_looks_like_a_row(void **state)
{
    struct cn_part inputs[] = {
        {CN_STR("A"), CN_STR("tensor/INT32[1,2]"), CN_STR("12345678")},
        {CN_STR("T"), CN_STR("tensor/BYTES[1,2]"), CN_STR("\2\0\0\0xy\1\0\0\0z")},
        {CN_STR("body"), CN_STR("text/plain"), CN_STR("no tensor")}};
    const struct cn_row like = {.n_parts = 3, .parts = inputs};
    const struct cn_row *pad;
    const float not_ready = 0;
    struct cn_tensor tensor;
    struct cn_error err;

    (void)state;
    open_with("TYPE_STRING", 4);
    pad = cn_controls_pad(io, &like, &arena);
    assert_int_equal(pad->n_parts, 6);
    has(pad, "A", "tensor/INT32[1,2]", "\0\0\0\0\0\0\0\0", 8);
    has(pad, "T", "tensor/BYTES[1,2]", "\0\0\0\0\0\0\0\0", 8);
    has(pad, "R", "tensor/FP32[1,1]", &not_ready, 4);
    has(pad, "E", "tensor/BOOL[1,1]", "\0", 1);
    has(pad, "C", "tensor/BYTES[1,1]", "\0\0\0\0", 4);
    for (uint32_t i = 0; i < pad->n_parts; i++) {
        assert_true(cn_tensor_of_part(&pad->parts[i], &tensor));
        assert_int_equal(cn_tensor_check(&tensor, &err), 0);
    }
    done();
}

/* Without controls nothing is added. */
static void
untyped_rows_stay(void **state)
{
    const struct cn_row row = {.n_parts = 0};
    struct cn_error err;

    (void)state;
    assert_ptr_equal(cn_controls_add(NULL, &row, true, &arena, &err), &row);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(controls_follow_the_inputs),
        cmocka_unit_test(ids_have_their_kind),
        cmocka_unit_test(padding_looks_like_a_row),
        cmocka_unit_test(untyped_rows_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* kserve/check_test.c - tests the messages for refused requests, also when a client makes them as
 * long as it can. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/mem.h"
#include "core/text/utf8.h"
#include "kserve/infer_answer.h"
#include "kserve/request.h"

#define N_INPUTS 200
#define NAME_BYTES 20000

/* A client chooses the length of names. A message with all of them once took memory and time that
 * grew with the square of their bytes. */
static void
a_message_of_long_names_is_short(void **state)
{
    struct cn_tensor_spec spec = {.name = CN_STR("A"), .type = CN_DATATYPE_INT32};
    struct cn_model_io io = {.n_inputs = 1, .n_required = 1, .inputs = &spec};
    struct cn_tensor inputs[N_INPUTS];
    struct cn_v2_request request = {.n_inputs = N_INPUTS, .inputs = inputs};
    char *names = cn_alloc(N_INPUTS * NAME_BYTES);
    struct cn_arena arena;
    struct cn_error err;

    (void)state;
    for (size_t i = 0; i < N_INPUTS; i++) {
        char *name = names + i * NAME_BYTES;

        memset(name, 'x', NAME_BYTES);
        snprintf(name, NAME_BYTES, "%zu", i);
        inputs[i] = (struct cn_tensor){.name = {name, NAME_BYTES}};
    }
    cn_arena_init(&arena);
    assert_int_equal(cn_v2_check(&request, &io, "m", &arena, &err), CN_E_BAD_REQUEST);
    assert_string_equal(err.message,
                        "[request id: <id_unknown>] expected 1 inputs but got 200 inputs for model "
                        "'m'. Got input(s) [...], but missing required input(s) ['A']. Please "
                        "provide all required input(s).");
    assert_true(arena.used_bytes < 10000);
    inputs[0].name = CN_STR("B");
    inputs[1].name = CN_STR("C");
    assert_int_equal(cn_v2_check(&request, &io, "m", &arena, &err), CN_E_BAD_REQUEST);
    assert_non_null(strstr(err.message, "Got input(s) ['B','C',...], but missing"));
    cn_arena_fini(&arena);
    cn_free(names);
}

/* An id or a name is cut between two characters, and the rest of the message is not lost. */
static void
messages_are_utf8(void **state)
{
    static const char id[] = "a\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
                             "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
                             "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
                             "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4";
    struct cn_tensor_spec spec = {.name = CN_STR("A"), .type = CN_DATATYPE_INT32};
    struct cn_model_io io = {.n_inputs = 1, .n_required = 1, .inputs = &spec};
    struct cn_tensor input = {.name = CN_STR("A"), .type = CN_DATATYPE_FP32};
    struct cn_v2_request request = {.id = {id, sizeof(id) - 1}, .n_inputs = 1, .inputs = &input};
    struct cn_arena arena;
    struct cn_error err;

    (void)state;
    cn_arena_init(&arena);
    assert_int_equal(cn_v2_check(&request, &io, "m", &arena, &err), CN_E_BAD_REQUEST);
    assert_true(cn_utf8_is_valid(cn_str_from(err.message)));
    assert_null(strchr(err.message, '?'));
    assert_non_null(strstr(err.message, "] inference input 'A' data-type is 'FP32'"));
    cn_arena_fini(&arena);
}

/* A C handler can name an output twice, and a client could read either one. So such an answer is
 * refused. */
static void
an_output_is_given_once(void **state)
{
    struct cn_tensor_spec spec = {.name = CN_STR("Y"), .type = CN_DATATYPE_INT32};
    struct cn_model_io io = {.n_outputs = 1, .outputs = &spec};
    struct cn_tensor tensors[2] = {{.name = CN_STR("Y"), .type = CN_DATATYPE_INT32},
                                   {.name = CN_STR("Y"), .type = CN_DATATYPE_INT32}};
    struct cn_v2_request request = {.n_inputs = 0};
    struct cn_v2_answer answer = {.n_tensors = 1, .tensors = tensors};
    struct cn_error err;

    (void)state;
    assert_int_equal(cn_v2_answer_check(&answer, &request, &io, &err), 0);
    answer.n_tensors = 2;
    assert_int_equal(cn_v2_answer_check(&answer, &request, &io, &err), CN_E_HANDLER_FAILED);
    assert_string_equal(err.message, "the handler returned output 'Y' twice");
}

/* Inputs and outputs are found in any order, and a name that comes twice is noticed, wherever. */
static void
many_names_may_have_any_order(void **state)
{
    struct cn_tensor_spec specs[CN_MODEL_TENSORS_MAX];
    struct cn_model_io io = {.n_inputs = CN_MODEL_TENSORS_MAX,
                             .n_required = CN_MODEL_TENSORS_MAX,
                             .inputs = specs,
                             .n_outputs = CN_MODEL_TENSORS_MAX,
                             .outputs = specs};
    struct cn_tensor inputs[CN_MODEL_TENSORS_MAX];
    struct cn_v2_output outputs[CN_MODEL_TENSORS_MAX];
    struct cn_v2_request request = {.n_inputs = CN_MODEL_TENSORS_MAX,
                                    .inputs = inputs,
                                    .n_outputs = CN_MODEL_TENSORS_MAX,
                                    .outputs = outputs};
    static char names[CN_MODEL_TENSORS_MAX][4];
    struct cn_arena arena;
    struct cn_error err;

    (void)state;
    cn_arena_init(&arena);
    for (unsigned step = 1; step <= 255; step += 126) { /* odd, so each number comes once */
        for (unsigned i = 0; i < CN_MODEL_TENSORS_MAX; i++) {
            const struct cn_str name = {names[i], 3};
            const unsigned at = i * step % CN_MODEL_TENSORS_MAX;

            snprintf(names[i], sizeof(names[i]), "%03u", i);
            specs[i] = (struct cn_tensor_spec){.name = name, .type = CN_DATATYPE_INT8};
            inputs[at] =
                (struct cn_tensor){.name = name, .type = CN_DATATYPE_INT8, .data = CN_STR("x")};
            outputs[CN_MODEL_TENSORS_MAX - 1 - at] = (struct cn_v2_output){.name = name};
        }
        assert_int_equal(cn_v2_check(&request, &io, "m", &arena, &err), 0);
        outputs[200].name = outputs[3].name;
        assert_int_equal(cn_v2_check(&request, &io, "m", &arena, &err), CN_E_BAD_REQUEST);
        assert_non_null(strstr(err.message, "' already exists in request"));
        request.n_outputs = 0;
        inputs[7].name = inputs[250].name;
        assert_int_equal(cn_v2_check(&request, &io, "m", &arena, &err), CN_E_BAD_REQUEST);
        assert_non_null(strstr(err.message, "' already exists in request"));
        inputs[7].name = CN_STR("else");
        assert_int_equal(cn_v2_check(&request, &io, "m", &arena, &err), CN_E_BAD_REQUEST);
        assert_non_null(strstr(err.message, "unexpected inference input 'else'"));
        request.n_outputs = CN_MODEL_TENSORS_MAX;
    }
    cn_arena_fini(&arena);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_of_long_names_is_short),
        cmocka_unit_test(messages_are_utf8),
        cmocka_unit_test(an_output_is_given_once),
        cmocka_unit_test(many_names_may_have_any_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

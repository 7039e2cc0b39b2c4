/* grpc/torchserve/grpc_step_test.c - tests the reader of PredictionsRequest, which is written by
 * hand. */
#include "grpc/torchserve/grpc_step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <inference.pb-c.h>

#include "grpc/protobuf_message.h"

typedef Org__Pytorch__Serve__Grpc__Inference__PredictionsRequest request_t;
typedef Org__Pytorch__Serve__Grpc__Inference__PredictionsRequest__InputEntry entry_t;

static struct cn_arena arena;

static int
set_up(void **state)
{
    (void)state;
    cn_arena_init(&arena);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    cn_arena_fini(&arena);
    return 0;
}

/* Returns the bytes that a client with protobuf sends. */
static struct cn_str
packed(const char *model, const char *version, const char *sequence, const char *const *inputs)
{
    request_t request = ORG__PYTORCH__SERVE__GRPC__INFERENCE__PREDICTIONS_REQUEST__INIT;
    entry_t entries[8], *list[8];

    request.model_name = (char *)(uintptr_t)model;
    request.model_version = (char *)(uintptr_t)version;
    if (sequence) {
        request._sequence_id_case =
            ORG__PYTORCH__SERVE__GRPC__INFERENCE__PREDICTIONS_REQUEST___SEQUENCE_ID_SEQUENCE_ID;
        request.sequence_id = (char *)(uintptr_t)sequence;
    }
    for (; inputs && inputs[0]; inputs += 2) {
        entry_t *entry = &entries[request.n_input];

        *entry =
            (entry_t)ORG__PYTORCH__SERVE__GRPC__INFERENCE__PREDICTIONS_REQUEST__INPUT_ENTRY__INIT;
        entry->key = (char *)(uintptr_t)inputs[0];
        entry->value.data = (uint8_t *)(uintptr_t)inputs[1];
        entry->value.len = strlen(inputs[1]);
        list[request.n_input++] = entry;
    }
    request.input = list;
    return cn_rpc_pack(&request.base, &arena);
}

static void
assert_part(const struct cn_rpc_prediction *prediction, uint32_t i, const char *name,
            const char *data)
{
    assert_true(i < prediction->n_parts);
    assert_true(cn_str_eq(prediction->parts[i].name, cn_str_from(name)));
    assert_true(cn_str_eq(prediction->parts[i].data, cn_str_from(data)));
}

/* The reader finds all fields that the encoder has written. */
static void
all_fields_are_found(void **state)
{
    static const char *const inputs[] = {"data", "1", "other", "", "TS-Request-Sequence-End",
                                         "true", NULL};
    struct cn_rpc_prediction prediction;

    (void)state;
    assert_int_equal(
        cn_rpc_prediction_read(packed("m", "1.0", "s", inputs), &arena, &prediction, NULL), 0);
    assert_true(cn_str_eq(prediction.model_name, CN_STR("m")));
    assert_true(cn_str_eq(prediction.model_version, CN_STR("1.0")));
    assert_true(prediction.has_sequence_id);
    assert_true(cn_str_eq(prediction.sequence_id, CN_STR("s")));
    assert_int_equal(prediction.n_parts, 2);
    assert_part(&prediction, 0, "data", "1");
    assert_part(&prediction, 1, "other", "");
    assert_int_equal(prediction.n_controls, 1);
    assert_true(cn_str_eq(prediction.controls[0].value, CN_STR("true")));
}

/* On the wire, an id that is present and empty differs from an absent one (`optional` of
 * proto3). */
static void
an_absent_sequence_id_is_known(void **state)
{
    struct cn_rpc_prediction prediction;

    (void)state;
    assert_int_equal(cn_rpc_prediction_read(packed("m", "", NULL, NULL), &arena, &prediction, NULL),
                     0);
    assert_false(prediction.has_sequence_id);
    assert_int_equal(cn_rpc_prediction_read(packed("m", "", "", NULL), &arena, &prediction, NULL),
                     0);
    assert_true(prediction.has_sequence_id);
    assert_int_equal(prediction.sequence_id.len, 0);
}

/* If a map has a key twice, the last one counts, as in protobuf. */
static void
the_last_value_of_a_key_counts(void **state)
{
    static const char *const inputs[] = {"data", "1", "x", "2", "data", "3", NULL};
    struct cn_rpc_prediction prediction;

    (void)state;
    assert_int_equal(
        cn_rpc_prediction_read(packed("m", "", NULL, inputs), &arena, &prediction, NULL), 0);
    assert_int_equal(prediction.n_parts, 2);
    assert_part(&prediction, 0, "data", "3");
    assert_part(&prediction, 1, "x", "2");
}

static void
refused(struct cn_str bytes, const char *why)
{
    struct cn_rpc_prediction prediction;
    struct cn_error err;

    assert_int_equal(cn_rpc_prediction_read(bytes, &arena, &prediction, &err), CN_E_BAD_REQUEST);
    assert_string_equal(err.message, why);
}

static void
what_is_wrong_is_named(void **state)
{
    static char many[2 * (CN_RPC_INPUTS_MAX + 1)];
    size_t i;

    (void)state;
    refused(packed("", "", NULL, NULL), "Parameter model_name is required.");
    refused(CN_STR("\x0a\x02\xff\xfe"), "model_name is not UTF-8");
    refused(CN_STR("\x0a\x01m\x12\x01\x80"), "model_version is not UTF-8");
    refused(CN_STR("\x0a\x01m\x22\x03"
                   "a\0b"),
            "sequence_id has a zero byte");
    refused(CN_STR("\x0a\x01m\x1a\x03\x0a\x01\xff"), "a name in input is not UTF-8");
    refused(CN_STR("\x0a\x05m"), "the body is not a valid PredictionsRequest message");
    refused(CN_STR("\x0a\x01m\x1a\x02\x0a\x09"),
            "the body is not a valid PredictionsRequest message");
    for (i = 0; i < sizeof(many); i += 2)
        many[i] = 0x1a;
    refused((struct cn_str){many, sizeof(many)}, "input has 257 entries; the limit is 256");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_fields_are_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_absent_sequence_id_is_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_value_of_a_key_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_named, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("rpc.step", tests, NULL, NULL);
}

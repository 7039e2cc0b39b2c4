/* grpc/json_message_test.c - tests making messages from JSON, for configurations and statistics. */
#include "grpc/json_message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <v2_inference.pb-c.h>

#include "kserve/json/json_words.h"

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

static void *
make(const ProtobufCMessageDescriptor *type, const char *text)
{
    struct cn_error err;
    ProtobufCMessage *message;
    json_t *root;

    assert_int_equal(cn_v2_json_load(cn_str_from(text), &root, &err), 0);
    message = cn_rpc_message_of_json(type, root, &arena);
    json_decref(root); /* the message borrows nothing from it */
    return message;
}

/* Lists, nested messages, enums by their names, and the member of a oneof that is set are read. */
static void
a_configuration_becomes_its_message(void **state)
{
    const Inference__ModelConfig *config =
        make(&inference__model_config__descriptor,
             "{\"name\":\"m\",\"max_batch_size\":8,\"input\":[{\"name\":\"X\",\"data_type\":"
             "\"TYPE_FP32\",\"dims\":[-1,16],\"optional\":true},{\"name\":\"Y\"}],"
             "\"sequence_batching\":{\"max_sequence_idle_microseconds\":5000000,\"direct\":"
             "{\"minimum_slot_utilization\":0.5}},\"parameters\":{\"a\":{\"string_value\":\"1\"},"
             "\"b\":{\"string_value\":\"2\"}}}");

    (void)state;
    assert_string_equal(config->name, "m");
    assert_int_equal(config->max_batch_size, 8);
    assert_int_equal(config->n_input, 2);
    assert_int_equal(config->input[0]->data_type, INFERENCE__DATA_TYPE__TYPE_FP32);
    assert_int_equal(config->input[0]->n_dims, 2);
    assert_int_equal(config->input[0]->dims[0], -1);
    assert_true(config->input[0]->optional);
    assert_false(config->input[1]->optional);
    assert_int_equal(config->scheduling_choice_case,
                     INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING);
    assert_int_equal(config->sequence_batching->max_sequence_idle_microseconds, 5000000);
    assert_int_equal(config->sequence_batching->strategy_choice_case,
                     INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_DIRECT);
    assert_true(config->sequence_batching->direct->minimum_slot_utilization > 0.49f);
    assert_int_equal(config->n_parameters, 2);
    assert_string_equal(config->parameters[1]->key, "b");
    assert_string_equal(config->parameters[1]->value->string_value, "2");
}

/* Integers keep all 64 bits, and the values of a map may be messages. */
static void
statistics_keep_their_numbers(void **state)
{
    const Inference__ModelStatistics *stats =
        make(&inference__model_statistics__descriptor,
             "{\"last_inference\":18446744073709551615,\"inference_count\":9007199254740993,"
             "\"response_stats\":{\"0\":{\"success\":{\"count\":3,\"ns\":7}}}}");

    (void)state;
    assert_true(stats->last_inference == UINT64_MAX);
    assert_true(stats->inference_count == 9007199254740993u);
    assert_int_equal(stats->n_response_stats, 1);
    assert_string_equal(stats->response_stats[0]->key, "0");
    assert_int_equal(stats->response_stats[0]->value->success->count, 3);
}

/* In JSON the keys of a map are always strings, even if the message has numbers as keys. */
static void
a_map_may_have_numbers_as_keys(void **state)
{
    const Inference__ModelConfig *config =
        make(&inference__model_config__descriptor,
             "{\"dynamic_batching\":{\"priority_queue_policy\":{\"1\":{\"max_queue_size\":5},"
             "\"12\":{\"max_queue_size\":6}}}}");
    const Inference__ModelDynamicBatching *batching = config->dynamic_batching;

    (void)state;
    assert_int_equal(batching->n_priority_queue_policy, 2);
    assert_int_equal(batching->priority_queue_policy[0]->key, 1);
    assert_int_equal(batching->priority_queue_policy[1]->key, 12);
    assert_int_equal(batching->priority_queue_policy[1]->value->max_queue_size, 6);
}

/* A member without a field, without a value, or with a value of another type is ignored. */
static void
what_does_not_fit_is_left_out(void **state)
{
    const Inference__ModelConfig *config =
        make(&inference__model_config__descriptor,
             "{\"nobody\":1,\"name\":5,\"platform\":null,\"max_batch_size\":\"8\",\"input\":[1,"
             "{\"name\":\"X\",\"data_type\":\"TYPE_NONE\"}],\"dynamic_batching\":3,"
             "\"model_transaction_policy\":{\"decoupled\":1}}");

    (void)state;
    assert_string_equal(config->name, "");
    assert_string_equal(config->platform, "");
    assert_int_equal(config->max_batch_size, 0);
    assert_int_equal(config->n_input, 1);
    assert_int_equal(config->input[0]->data_type, INFERENCE__DATA_TYPE__TYPE_INVALID);
    assert_int_equal(config->scheduling_choice_case, 0);
    assert_false(config->model_transaction_policy->decoupled);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_configuration_becomes_its_message, set_up, tear_down),
        cmocka_unit_test_setup_teardown(statistics_keep_their_numbers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_map_may_have_numbers_as_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_left_out, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
